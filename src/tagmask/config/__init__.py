"""Every setting of every stage: one frozen dataclass per stage, TOML in and out, all mistakes told at once."""

from tagmask.config.affinity import AffinitySettings
from tagmask.config.base import DataSettings, LoopSettings, Settings, check, parse_shard
from tagmask.config.presets import (
    PAPER_VOC,
    PREDICT_PRESETS,
    PSEUDO_PRESETS,
    SCENE_MAPS,
    SCENE_MASKS,
    SCENE_PSEUDO,
    SCENE_SEGMENTER,
    SCENES,
    SEED_PRESETS,
    SEGMENT_PRESETS,
    TRAIN_PRESETS,
    VOC_SEGMENTER,
    Preset,
)
from tagmask.config.pseudo import PseudoSettings
from tagmask.config.report import ReportSettings
from tagmask.config.seeds import MapSettings, PhotoSettings, ScoreSettings, SeedSettings
from tagmask.config.segment import (
    HALO,
    ExportSettings,
    MaskSettings,
    PredictPhotoSettings,
    PredictSettings,
    SegmentSettings,
)
from tagmask.config.toml import read_toml, read_values, to_plain, write_section
from tagmask.config.train import TrainSettings

__all__ = [
    "AffinitySettings",
    "DataSettings",
    "ExportSettings",
    "HALO",
    "LoopSettings",
    "MapSettings",
    "MaskSettings",
    "PAPER_VOC",
    "PREDICT_PRESETS",
    "PSEUDO_PRESETS",
    "PseudoSettings",
    "PhotoSettings",
    "PredictPhotoSettings",
    "PredictSettings",
    "Preset",
    "ReportSettings",
    "SCENES",
    "SCENE_MAPS",
    "SCENE_MASKS",
    "SCENE_PSEUDO",
    "SCENE_SEGMENTER",
    "SEED_PRESETS",
    "SEGMENT_PRESETS",
    "ScoreSettings",
    "SeedSettings",
    "SegmentSettings",
    "Settings",
    "TRAIN_PRESETS",
    "TrainSettings",
    "VOC_SEGMENTER",
    "check",
    "parse_shard",
    "read_toml",
    "read_values",
    "to_plain",
    "write_section",
]
