"""Every setting of every stage: one frozen dataclass each, all mistakes reported at once."""

from tagmask.config.base import DataSettings, LoopSettings, Settings, check, parse_shard
from tagmask.config.exchange import (
    CorrectionSettings,
    ExportSettings,
    PushSettings,
    ServeSettings,
    SubclassSettings,
)
from tagmask.config.explore import ExploreSettings, StudioSettings
from tagmask.config.presets import PRESETS, preset_of
from tagmask.config.pseudo import AffinitySettings, PseudoSettings
from tagmask.config.seeds import (
    CheckSettings,
    MapSettings,
    PhotoSettings,
    ReportSettings,
    ScoreSettings,
    SeedSettings,
)
from tagmask.config.segment import (
    HALO,
    DeepLabSettings,
    HeadSettings,
    MaskSettings,
    PredictPhotoSettings,
    PredictSettings,
    SegmentSettings,
)
from tagmask.config.toml import read_toml, read_values, to_plain, write_sections
from tagmask.config.train import TrainSettings
from tagmask.config.use import read_use, settings_from, use_of
