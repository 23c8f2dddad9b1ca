"""What `--help` prints before the settings.

A backslash at the end of a line joins it with the next: what is printed may be longer than a line
of this file.
"""

from tagmask.config import PRESETS

USAGE = """\
tagmask: images that carry only tags go in, segmentation masks come out.

  tagmask demo      everything on built-in pictures, in minutes on a laptop
  tagmask run       all stages, from images and tags to masks
  tagmask train     train a tag classifier with all-pairs consistency
  tagmask seeds     localisation maps of tagged images, or of one photo
  tagmask score     how well maps, labels and predictions match true masks
  tagmask pseudo    pixel labels from the maps, by random walk, dense CRF or attention
  tagmask segment   train a segmentation network on pseudo labels
  tagmask predict   masks of a catalog, a folder of photos, or one photo
  tagmask check     whether the masks of each tag can be believed, without true masks
  tagmask report    one page on a run: scores, curves, pictures, and how they were made
  tagmask export    masks for COCO, VOC, Label Studio, CVAT and others; the network as ONNX
  tagmask shard     photos by the million into shards, on a disk or in object storage
  tagmask sample    a sample of shards as a folder of photos, to train on
  tagmask studio    from a folder of photos to checked masks, in the browser
  tagmask explore   the same page on a run or a photo: look inside, correct, learn again
  tagmask serve     masks for Label Studio while people annotate
  tagmask push      masks sent to a Label Studio project as predictions
  tagmask corrections    corrected masks from Label Studio, CVAT or COCO, to learn from
  tagmask subclasses     kinds of one tag: sort its regions, name them, learn again
  tagmask paper     each table and figure of the ACR paper, ours beside theirs
  tagmask presets   what each preset is for
  tagmask selftest  whether everything works on this machine, and how fast; half a minute
  tagmask slurm     a Slurm script for a command: one node, several, or a job array

  tagmask COMMAND --help        examples, and the settings that most people change
  tagmask COMMAND --help-all    every setting
  tagmask --version
"""

_PRESETS = f"""
also: --preset NAME   start from a named recipe; `tagmask presets` explains each:
                      {", ".join(PRESETS)}
"""
SOURCES = (
    f"{_PRESETS}      --config FILE   "
    "start from the section of this command in a run's config.toml\n"
)

DEMO = """\
From tags to masks, on built-in pictures: minutes on two cores, no download, no GPU.

examples:
  tagmask demo --out demo
"""

RUN = f"""\
From images and tags to masks: train, seeds, pseudo, segment, predict, check, score, report. \
If it is stopped, the same
command resumes it; a finished stage is redone only if its settings or inputs have changed.

examples:
  tagmask run photos tags.csv --out run                    \
your photos and a table of their tags
  tagmask run photos --out run                             photos in one folder per tag
  tagmask run photos tags.csv --out run --weights FILE     \
weights of a file instead of fetching them
  tagmask run run                                          the same run again: resumes it
  tagmask run VOCdevkit/VOC2012 --out run                  PASCAL VOC as we recommend it
  tagmask run --preset scenes --out run --train.steps 200 --pseudo.method walk \
--segment.backbone resnet18
  tagmask run --config run/config.toml --out other         the settings of another run
  tagmask run --preset voc --root VOCdevkit/VOC2012 --out run --gpus all --train.batch 8
{_PRESETS}      --config FILE   start from a run's config.toml
      --gpus all      one process for each GPU of this machine, or for so many; \
accelerate launch and torchrun do it, too
      --STAGE.NAME    \
any setting of a stage, as `tagmask STAGE --help-all` lists them, e.g. --train.lr 1e-3;
                      stages: train, seeds, pseudo, segment, predict
"""

START_OF_RUN = """\
Where the training starts: a file of weights, and the network that it is of. Own photos start from \
published weights of the network below, fetched once; VOC, COCO and --preset have networks of \
their own.
"""

SLURM = """\
Write a Slurm script for a command: one node, several nodes that do a run together, or a job \
array that shares out the images.

examples:
  tagmask slurm --to job.sh --gpus 8 run --preset voc --root VOCdevkit/VOC2012 --out run \
--train.batch 8 --segment.batch 16
  tagmask slurm --to job.sh --nodes 2 --gpus 8 run --preset coco --images coco/train2014 \
--annotations instances.json --out run --train.batch 16 --pseudo.affinity.batch 16 \
--segment.batch 16
  tagmask slurm --to job.sh --array 32 predict --out masks --model run/5_segmenter --photos photos
"""

TRAIN = """\
Train a tag classifier with all-pairs consistency (ACR). \
If it is stopped, the same command resumes it.

examples:
  tagmask train --preset scenes --out run
  tagmask train --data folder --images photos --tags tags.csv --backbone deit_small_patch16_224 \
--pretrained --out run
  tagmask train --preset voc --root VOCdevkit/VOC2012 --out run
  tagmask train --preset scenes-mct --out mct              \
MCTformer with ACR; without: --alpha 0 --beta 0
  accelerate launch --num_processes 8 -m tagmask train --preset voc --root VOCdevkit/VOC2012 \
--batch 8 --out run
"""

SEEDS = """\
Make localisation maps ("seeds") of all images of a run, or of one photo. \
If it is stopped, the same command resumes it.

examples:
  tagmask seeds run                                        the images and the model of the run
  tagmask seeds --out run --data voc --root VOC2012 --split val
  tagmask seeds run photo.jpg --tags dog,sofa --show out.png
  tagmask seeds run photo.jpg                              the classes the model itself sees
  tagmask seeds run s3://bucket/shards --to s3://bucket/maps    shards: add --help
"""

SCORE = """\
Compare what a run has made with true masks: \
maps at all thresholds and at thresholds chosen without masks, pseudo
labels, and predictions.

examples:
  tagmask score --out run
  tagmask score --out run --data voc --root VOC2012 --split val --processes 4
"""

PSEUDO = """\
Turn the seeds of a run into pixel labels (palette PNG, 255 = unsure). \
If it is stopped, the same command resumes it.

examples:
  tagmask pseudo --out run --affinity.pretrained           \
AffinityNet and random walk (PSA), as in the paper
  tagmask pseudo --out run --method crf --processes 4      only the dense CRF, nothing to train
  tagmask pseudo --out run --method attention              \
the classifier's own affinity, nothing to train
  tagmask pseudo --preset voc-paper --out run              with the ACR authors' numbers
  tagmask pseudo --out run --background-power 16 --steps 256 --beta 8 --no-crf      \
as PSA was published
"""

CHECK = """\
Say whether the masks of each tag can be believed, without true masks: good, doubtful, or \
probably the surroundings,
with the reason and what to do.

examples:
  tagmask check --out run
"""

REPORT = """\
Write run/report.html: scores, curves, a gallery, and how they were made, in one file that any \
browser opens.

examples:
  tagmask report --out run
  tagmask report --out run --data voc --root VOC2012 --split val --rows 24
"""

SEGMENT = """\
Train a segmentation network (DeepLabV2) on pseudo labels. \
If it is stopped, the same command resumes it.

examples:
  tagmask segment --preset scenes --out run                \
the images and the pseudo labels of the run
  tagmask segment --out run --backbone resnet18 --pretrained --size 225 --steps 4000
  tagmask segment --out run --data folder --images photos --tags tags.csv --pseudo masks \
--pretrained
  accelerate launch --num_processes 2 -m tagmask segment --preset voc --out run
"""

PREDICT = """\
Predict masks of the images of a run, of a folder of photos, or of one photo. \
If it is stopped, the same
command resumes it.

examples:
  tagmask predict run photo.jpg --tags dog,sofa --show out.png
  tagmask predict run holiday --to masks                   a folder of photos
  tagmask predict run                                      the images of the run
  tagmask predict --out run --data voc --root VOC2012 --split val
  tagmask predict --out run --photos holiday --tile 1024
  tagmask predict run photo.jpg --tags dog,sofa --no-crf --mask mask.png
  tagmask predict run s3://bucket/shards --to s3://bucket/masks    shards: add --help
"""

EXPORT = """\
Write the masks of a run as other tools read them, or the segmentation network as ONNX.

examples:
  tagmask export run --to masks.json                       COCO
  tagmask export run --to masks.zip                        CVAT
  tagmask export --out run --format voc --to folder
  tagmask export --out run --format label-studio --to tasks.json
  tagmask export --out run --format cvat --pieces --to masks.zip
  tagmask export --out run --labels run/4_pseudo --format voc --to folder
  tagmask export --out run --format ultralytics --val-fraction 0.2 --to folder
  tagmask export --out run --format fiftyone --to folder
  tagmask export --out run --format huggingface --to folder
  tagmask export --out run --format table --mm-per-pixel 0.4 --to areas.csv
  tagmask export run --to areas.csv --decimal-comma        for spreadsheets with a decimal comma
  tagmask export --out run --onnx segmenter.onnx
  tagmask export s3://bucket/masks --to s3://bucket/coco         shards: add --help
"""

SHARD = """\
Put photos into shards: tar files of about 10,000 images with their tags, as WebDataset reads \
them. A shard is done when its note is there; stopped, the same command resumes it.

examples:
  tagmask shard photos --to shards
  tagmask shard photos --tags tags.csv --to s3://bucket/shards
  tagmask shard manifest.parquet --root s3://bucket/photos --to s3://bucket/shards
  tagmask shard photos --to s3://bucket/shards --shard 0/8     one of eight machines
"""
SHARD_SHARDS = SHARD

SAMPLE = """\
Copy a sample of the images of shards into a folder with a table of their tags, to train on. \
The names and the seed decide
which images are drawn.

examples:
  tagmask sample s3://bucket/shards --to photos --count 5000
  tagmask run photos/images photos/tags.csv --out run
"""
SAMPLE_SHARDS = SAMPLE

PREDICT_SHARDS = """\
Predict masks of shards: for NAME.tar a tar of masks with the same keys, and a note. \
A shard is done when its note is there
and fits; if the command is stopped, the same command resumes it.

examples:
  tagmask predict run s3://bucket/shards --to s3://bucket/masks
  tagmask predict run shards --to masks --shard 0/8            one of eight machines
  tagmask predict run manifest.csv --root s3://bucket/photos --to masks
  tagmask predict run s3://bucket/shards --to s3://bucket/masks --engine ray --ray-address auto
"""

SEEDS_SHARDS = """\
Make localisation maps of the tagged images of shards: for NAME.tar a tar of maps with the same \
keys, and a note.

examples:
  tagmask seeds run s3://bucket/shards --to s3://bucket/maps
  tagmask seeds run shards --to maps --shard 0/8               one of eight machines
"""

EXPORT_SHARDS = """\
Write shards of masks as other tools read them: a file and a note for each shard.

examples:
  tagmask export s3://bucket/masks --format coco --to s3://bucket/coco
  tagmask export masks --format table --mm-per-pixel 0.4 --to areas
  tagmask export masks --photos shards --format overlays --to overlays
"""

STUDIO = """\
From a folder of photos to checked masks in the browser: tag, run, review, correct, measure, \
export. The page is served on
this machine alone and needs no network. Tags and masks go to FOLDER-tagmask beside the photos. \
Ctrl-C ends it.

examples:
  tagmask studio                                           choose or drop a folder in the page
  tagmask studio photos
  tagmask studio photos --tags tags.csv                    begin with tags that are there already
  tagmask studio photos --weights dinov2.safetensors       \
weights of a file instead of fetching them
  tagmask studio photos-tagmask                            go on later
"""

EXPLORE = """\
Look into a run or a photo in the browser: what a pixel attends to, maps, labels and masks; \
correct a few pixels or
tags, and let the head learn again in seconds. The page is served on this machine alone. \
Ctrl-C ends it.

examples:
  tagmask explore run
  tagmask explore --out run --against other                two runs on the same photos side by side
  tagmask explore run photo.jpg --tags dog,sofa
  tagmask explore --out run --no-browser --port 8000       \
on another machine: ssh -L 8000:127.0.0.1:8000 HOST
"""

SERVE = """\
Answer Label Studio with the masks of a trained run, as its machine-learning backend, until Ctrl-C.

examples:
  tagmask serve --label-studio --out run --images photos
  tagmask serve --label-studio --out run --images photos --host 0.0.0.0 --secret secret.txt
"""

PUSH = """\
Send the masks of a run to a Label Studio project as predictions, through its API.

examples:
  tagmask push --out run --label-studio http://localhost:8080 --token token.txt --project 1
"""

CORRECTIONS = """\
Take over masks that were corrected in another tool; \
the stages keep them as they are, and learn from them.

examples:
  tagmask corrections --out run --from export.json         Label Studio's JSON, or COCO's instances
  tagmask corrections --out run --from task.zip            "CVAT for images 1.1"
  tagmask corrections --out run --from folder              LabelMe's files, or masks (PNG)
"""

PAPER = """\
Each table and figure of the ACR paper by one command, ours beside theirs. \
All tables in the same --out share their
trainings. If it is stopped, the same command resumes it.

examples:
  tagmask paper --list                                     every table and figure, and what it needs
  tagmask paper ablation --out paper                       on built-in scenes
  tagmask paper methods --out paper --random-seeds 3       \
three random seeds: mean ± standard deviation
  tagmask paper ablation --preset voc-paper --root VOCdevkit/VOC2012 --out paper
  accelerate launch --num_processes 4 -m tagmask paper ablation --preset voc-paper \
--root VOCdevkit/VOC2012 --out paper
  tagmask paper compare-voc --scores voc-val/scores.json --out paper    our row from a finished run
  tagmask paper ablation --out paper --rows none both      two of the four rows
  tagmask paper layers --config paper/ablation.toml --out paper    \
with the settings of another table
  tagmask paper maps --out paper --train.steps 200 --seeds.size 96 --pictures 6

also: --preset NAME   start from a recipe of `tagmask run`; default: scenes, unless --data is given
      --config FILE   start from the settings of another table, or a run's config.toml
      --STAGE.NAME    any setting of a stage, as `tagmask STAGE --help-all` lists them
"""

SUBCLASSES = """\
Divide a tag into kinds ("sponge" into three kinds of sponges). Its regions are sorted by \
how they look; you name
the kinds, or some regions, in the tables of the folder; then new tags are written, to \
learn from.

examples:
  tagmask subclasses --out run --tag sponge --into 6 --to kinds
  tagmask subclasses --out run --names kinds --to tags-of-kinds.csv
  tagmask run --preset own-photos --images photos --tags tags-of-kinds.csv --out run-of-kinds
"""
