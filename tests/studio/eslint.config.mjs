// Lint of the page's modules; tests/studio/test_tools.py says how to get the packages.
import js from "@eslint/js";
import globals from "globals";

export default [
  js.configs.recommended,
  {
    languageOptions: {ecmaVersion: 2022, sourceType: "module", globals: globals.browser},
    rules: {
      "eqeqeq": "error",
      "no-unused-vars": ["error", {argsIgnorePattern: "^_"}],
      "no-var": "error",
      "prefer-const": "error",
    },
  },
];
