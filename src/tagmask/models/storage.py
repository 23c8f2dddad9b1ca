"""A network on disk: ``model.safetensors`` and ``config.json``.

The latter says which kind of network it is, how to build it, and how it is to be used.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tagmask.config import Settings, read_use
from tagmask.errors import TagmaskError, is_out_of_memory
from tagmask.files import is_a, read_json, replacing, write_json
from tagmask.layout import MODEL, MODEL_CONFIG, USE, USE_VERSION

_FORMS: Mapping[str, Any] = {  # a list names the type of its members
    "backbone": str,
    "classes": [str],
    "crop_size": int,
    "size": int,
    "blocks": [int],
    "mct_read": str,
    "caffe": bool,
    "freeze_norm": bool,
    "multi_scale": bool,
    "img_size": (int, list, type(None)),
    "fixed_views": (list, type(None)),
}
_USE_VERSION = 1
_SCALAR = (str, int, float, bool, type(None))


def _has_form(value: Any, form: Any) -> bool:
    """Return True if a value of config.json has the form of ``_FORMS``, and sizes are sensible."""
    if isinstance(form, list):
        return isinstance(value, list) and all(is_a(member, form[0]) for member in value)
    if not is_a(value, form):
        return False
    if isinstance(value, list):  # sizes: two numbers
        are_sizes = [is_a(member, int) and member > 0 for member in value]
        return len(are_sizes) == 2 and all(are_sizes)
    if isinstance(value, int) and not isinstance(value, bool):
        return 0 < value <= 16_384
    return True


def use_in(config: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """Return what a config.json says about how its network is to be used; empty if nothing.

    Args:
        config: the content of the file.
        file: what an error names.

    Raises:
        TagmaskError: if it is no table of plain values, or of a version that is not known.
    """
    remedy = f"remove {USE} and {USE_VERSION} from it, and type `tagmask run` again"
    use = config.get(USE, {})
    if not _is_plain(use):
        raise TagmaskError(f"{file} is not as tagmask writes it ({USE} is {use!r}); {remedy}.")
    version = config.get(USE_VERSION, None if use else _USE_VERSION)
    if not is_a(version, int) or version != _USE_VERSION:
        raise TagmaskError(
            f"{file} tells the use of its network in version {version!r}, but this tagmask knows "
            f"version {_USE_VERSION}; update tagmask, or {remedy}."
        )
    return dict(use)


def _is_plain(use: Any) -> bool:
    """Return True for a dictionary of texts, finite numbers, true, false, null, and lists."""
    if not isinstance(use, dict):
        return False
    for name, value in use.items():
        members = value if isinstance(value, list) else [value]
        if not isinstance(name, str) or not all(is_a(member, _SCALAR) for member in members):
            return False
    return True


def read_network_use(folder: Path) -> dict[str, Any]:
    """Return how the network of a folder is to be used, without loading it."""
    file = folder / MODEL_CONFIG
    config = read_json(file)
    return use_in(config, file) if isinstance(config, dict) else {}


def write_network_use(folder: Path, use: Mapping[str, Any]) -> None:
    """Tell the network of a folder how it is to be used; config.json alone is rewritten.

    Nothing is written if the folder holds no network, or if it knows already. Neither is it if the
    folder is a link: what it leads to is the user's.

    Args:
        folder: the folder of a network.
        use: plain values; empty to forget what it was told.
    """
    file = folder / MODEL_CONFIG
    if folder.is_symlink() or file.is_symlink() or not file.is_file():
        return
    before = read_json(file)
    if not isinstance(before, dict):
        return
    config = {name: value for name, value in before.items() if name not in (USE, USE_VERSION)}
    config |= _use_entries(use)
    if config != before:
        write_json(file, config)


def _use_entries(use: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of config.json about the use; none if it is empty."""
    return {USE: dict(use), USE_VERSION: _USE_VERSION} if use else {}


def check_finite(tensors: Mapping[str, Tensor], source: str = "") -> None:
    """Refuse weights that are infinite or nan.

    Args:
        tensors: the weights by name.
        source: what an error calls the file they were read from; by default they are those of a
            training, before anything is saved.

    Raises:
        TagmaskError: if a value is not finite.
    """
    for name, value in tensors.items():
        if not value.is_floating_point():
            continue
        if name.endswith("running_var"):
            # half-precision files of ResNets have variances beyond its range: such a channel is
            # constant, not wrong
            is_usable = ~value.isnan()
        else:
            is_usable = value.isfinite()
        if bool(is_usable.all()):
            continue
        if source:
            raise TagmaskError(
                f"{source} holds values that are not finite (first: {name}); fetch it again."
            )
        raise TagmaskError(
            f"the weights are no longer finite (first: {name}), so nothing is saved; "
            "lower --lr, or add --clip 1."
        )


class StoredNetwork(nn.Module):
    """A network that is written to a folder and read back."""

    kind: ClassVar[str]  # as config.json names it
    saved: ClassVar[tuple[str, ...]]  # the attributes in config.json
    what: ClassVar[str]  # its name with an article
    remedy: ClassVar[str]  # what to do about a folder of another kind
    use_settings: ClassVar[type[Settings] | None] = None  # what ``use`` holds values of

    def __init__(self) -> None:
        super().__init__()
        self.use: dict[str, Any] = {}
        """How it is to be used: settings by name that differ from the defaults, as plain values."""

    @classmethod
    def build(cls, config: Mapping[str, Any]) -> Self:
        """Build the network of a config.json, its weights not yet loaded."""
        return cls(**{name: config[name] for name in cls.saved})

    def stored(self) -> nn.Module:
        """Return the part whose weights are written."""
        return self

    def more_config(self) -> dict[str, Any]:
        """Return what config.json holds besides the attributes of ``saved``."""
        return {}

    def tensors(self) -> dict[str, Tensor]:
        """Return everything that model.safetensors holds."""
        return self.stored().state_dict()

    def take_tensors(self, tensors: dict[str, Tensor]) -> None:
        """Take over what model.safetensors holds."""
        self.stored().load_state_dict(tensors)

    def save(self, path: Path | str) -> None:
        """Write ``model.safetensors`` and ``config.json`` into the folder ``path``."""
        folder = Path(path)
        weights = self.tensors()
        check_finite(weights)
        with replacing(folder / MODEL) as partial:
            tensors = {name: value.cpu().contiguous() for name, value in weights.items()}
            save_file(tensors, partial)
        config: dict[str, Any] = {"kind": self.kind}
        for name in self.saved:
            config[name] = getattr(self, name)
        config |= self.more_config()
        config |= _use_entries(self.use)
        use_in(config, folder / MODEL_CONFIG)  # refuses what could not be read back
        write_json(folder / MODEL_CONFIG, config)

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Read what ``save`` wrote, in eval mode; ``tagmask.load`` reads networks of any kind."""
        folder = Path(path)
        config = cls._read_config(folder)
        try:
            model = cls.build(config)
        except TagmaskError:
            raise
        except Exception as error:  # timm's constructors raise errors of many kinds
            if is_out_of_memory(error):
                raise
            raise TagmaskError(
                f"{folder / MODEL_CONFIG} describes no network that can be built ({error}); "
                "correct it or train again."
            ) from None
        for name in {"crop_size", "fixed_views"}.intersection(cls.saved):
            setattr(model, name, config[name])
        model.use = use_in(config, folder / MODEL_CONFIG)
        file = folder / MODEL
        if not file.is_file():
            raise TagmaskError(f"{file} does not exist; train {cls.what} into {folder} first.")
        try:
            model.take_tensors(load_file(file))
        except Exception as error:
            raise TagmaskError(
                f"{file} does not hold the model of config.json beside it: {error}\n"
                f"Take both from a backup, or train {cls.what} again with --restart."
            ) from None
        return model.eval()

    @classmethod
    def _read_config(cls, folder: Path) -> dict[str, Any]:
        """Read config.json and check that it describes a network of this kind."""
        read = read_json(folder / MODEL_CONFIG)
        config: dict[str, Any] = read if isinstance(read, dict) else {}
        is_complete = set(cls.saved) <= config.keys()
        if config.get("kind") != cls.kind or not is_complete:
            raise TagmaskError(f"{folder} does not hold {cls.what}{cls.remedy}")
        for name, form in _FORMS.items():
            if name in config and not _has_form(config[name], form):
                raise TagmaskError(
                    f"{folder / MODEL_CONFIG} is not as tagmask writes it "
                    f"({name} is {config[name]!r}); correct it or train again."
                )
        use = use_in(config, folder / MODEL_CONFIG)
        if cls.use_settings is not None:
            read_use(cls.use_settings, use, f"{folder / MODEL_CONFIG}: {USE}")
        for name in ("img_size", "fixed_views"):
            if isinstance(config.get(name), list):
                config[name] = tuple(config[name])
        return config
