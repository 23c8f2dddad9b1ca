"""How good masks and maps are: pure functions and counters on numpy arrays."""

from tagmask.scoring.average_precision import average_precision, mean_average_precision
from tagmask.scoring.confusion import Scores, confusion, iou
from tagmask.scoring.sweep import Curve, Sweep, sweep
from tagmask.scoring.threshold import Chooser, choosers, minimum_cross_entropy, otsu
