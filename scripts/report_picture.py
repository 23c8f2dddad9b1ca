"""Take the picture of a report that the docs show: its gallery, at the width of a page.

    python scripts/report_picture.py --run run --to docs/pictures/report.jpg

Needs playwright and chromium (CHROMIUM names another program than /usr/bin/chromium).
"""

import argparse
import io
import os
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

# pixels of the page; the picture has twice as many
WIDTH = 750
HEIGHT = 600
QUALITY = 85


def main() -> None:
    """Open the report of a run and store what is below the heading of its gallery."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", type=Path, required=True, help="with its report.html")
    parser.add_argument("--to", type=Path, required=True, help="a JPEG file")
    args = parser.parse_args()
    address = (args.run / "report.html").resolve().as_uri()
    program = os.environ.get("CHROMIUM", "/usr/bin/chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, device_scale_factor=2)
        page.goto(address)
        heading = page.get_by_role("heading", name="Gallery", exact=True)
        heading.evaluate("heading => window.scrollTo(0, heading.getBoundingClientRect().top - 8)")
        data = page.screenshot()
        browser.close()
    with Image.open(io.BytesIO(data)) as picture:
        picture.convert("RGB").save(args.to, quality=QUALITY, optimize=True)


if __name__ == "__main__":
    main()
