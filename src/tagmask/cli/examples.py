"""What `--help` prints before the settings."""

USAGE = """\
tagmask: images that carry only tags go in, segmentation masks come out.

  tagmask demo      everything on built-in pictures, in minutes on a laptop
  tagmask run       all stages, from images and tags to masks
  tagmask train     train a tag classifier with all-pairs consistency
  tagmask seeds     localisation maps of tagged images, or of one photo
  tagmask score     how well maps, labels and masks agree with true masks
  tagmask pseudo    pixel labels from the maps, by random walk, dense CRF or attention
  tagmask segment   train a segmentation network on pseudo labels
  tagmask predict   masks of a catalog, a folder of photos, or one photo
  tagmask report    one page on a run: scores, curves, pictures, and how all was made
  tagmask export    masks for COCO, VOC, Label Studio, CVAT; the network as ONNX
  tagmask paper     each table and figure of the ACR paper, ours beside theirs

  tagmask COMMAND --help    settings and examples of one command
  tagmask --version
"""

TRAIN_EXAMPLES = """\
Train a tag classifier with all-pairs consistency (ACR). Stopped anywhere and typed again, it goes on.

examples:
  tagmask train --preset scenes --out run
  tagmask train --data folder --images photos --tags tags.csv --backbone deit_small_patch16_224 --pretrained --out run
  tagmask train --preset voc --root VOCdevkit/VOC2012 --out run
  tagmask train --preset coco --images train2014 --annotations annotations/instances_train2014.json --out run
  tagmask train --preset scenes-seam --out seam            SEAM*: activation consistency alone
  tagmask train --preset scenes-mct --out mct              MCTformer with ACR; without: --alpha 0 --beta 0
  accelerate launch --num_processes 8 -m tagmask train --preset voc --root VOCdevkit/VOC2012 --batch 8 --out run

also: --preset NAME   start from a named recipe: scenes, voc, voc-deit-s, coco, scenes-seam, voc-seam, scenes-mct,
                      voc-mct
      --config FILE   start from the [train] section of a run's config.toml
"""

SEED_EXAMPLES = """\
Make localisation maps ("seeds") of all images of a run, or of one photo. Stopped and typed again, it goes on.

examples:
  tagmask seeds --out run                                  the images and the model of the run
  tagmask seeds --out run --data voc --root VOC2012 --split val
  tagmask seeds --out run --scales 0.75 1 1.25 --shard 0/4
  tagmask seeds photo.jpg --model run/1_classifier --tags dog,sofa --show out.png
  tagmask seeds photo.jpg --model run/1_classifier         the classes the model itself sees

also: --preset scenes  the blocks whose affinity is object-like in the small backbone of the built-in scenes
"""

SCORE_EXAMPLES = """\
Compare what a run has made with true masks: maps at all thresholds (and at thresholds chosen without masks), pseudo
labels, predictions. Every file is read once.

examples:
  tagmask score --out run
  tagmask score --out run --data voc --root VOC2012 --split val --processes 4
"""

PSEUDO_EXAMPLES = """\
Turn the seeds of a run into pixel labels (palette PNG, 255 = unsure). Stopped anywhere and typed again, it goes on.

examples:
  tagmask pseudo --out run --affinity.pretrained           the paper's way: AffinityNet and random walk
  tagmask pseudo --out run --method crf --processes 4      only the dense CRF, nothing to train
  tagmask pseudo --out run --method attention              the classifier's own affinity, nothing to train
  tagmask pseudo --out run --background 0.55 --no-crf      the paper's settings
  tagmask pseudo --preset scenes --out run

also: --preset NAME   start from a named recipe: scenes, voc, coco
      --config FILE   start from the [pseudo] section of a run's config.toml
"""

REPORT_EXAMPLES = """\
Write run/report.html: what was run, scores, curves, and a gallery; one file, to be opened in any browser.

examples:
  tagmask report --out run
  tagmask report --out run --data voc --root VOC2012 --split val --rows 24
"""

SEGMENT_EXAMPLES = """\
Train a segmentation network (DeepLabV2) on pseudo labels. Stopped anywhere and typed again, it goes on.

examples:
  tagmask segment --preset scenes --out run                the images and the pseudo labels of the run
  tagmask segment --out run --backbone resnet18 --pretrained --crop 225 --steps 4000
  tagmask segment --preset voc --out run
  tagmask segment --preset voc --out run --no-pretrained --weights resnet101.pth
  tagmask segment --out run --data folder --images photos --tags tags.csv --pseudo masks --pretrained
  accelerate launch --num_processes 2 -m tagmask segment --preset voc --out run

also: --preset NAME   start from a named recipe: scenes, voc, coco
      --config FILE   start from the [segment] section of a run's config.toml
"""

PREDICT_EXAMPLES = """\
Predict masks of the images of a run, of a folder of photos, or of one photo. Stopped and typed again, it goes on.

examples:
  tagmask predict --out run                                the images and the segmenter of the run
  tagmask predict --out run --data voc --root VOC2012 --split val
  tagmask predict --out run --use-tags --probabilities --shard 0/4
  tagmask predict --out run --photos holiday --tile 1024
  tagmask predict photo.jpg --model run/5_segmenter --show out.png
  tagmask predict photo.jpg --model run/5_segmenter --tags dog,sofa --no-crf --mask mask.png

also: --preset scenes  the built-in scenes at their own size only
      --config FILE    start from the [predict] section of a run's config.toml
"""

EXPORT_EXAMPLES = """\
Write the masks of a run as other tools read them, or the segmentation network as ONNX.

examples:
  tagmask export --out run --format coco --to masks.json
  tagmask export --out run --format coco --polygons --pieces --to masks.json
  tagmask export --out run --format voc --to folder
  tagmask export --out run --format voc-test --to results.tgz
  tagmask export --out run --format label-studio --to tasks.json
  tagmask export --out run --format cvat --pieces --to masks.zip
  tagmask export --out run --format overlays --to pictures
  tagmask export --out run --labels run/4_pseudo --format voc --to folder
  tagmask export --out run --onnx segmenter.onnx
"""

PAPER_EXAMPLES = """\
Each table and figure of the ACR paper by one command, ours beside theirs. Trainings are shared by all tables in the
same --out. Stopped anywhere and typed again, it goes on.

examples:
  tagmask paper --list                                     every table and figure, and what it needs
  tagmask paper ablation --out paper                       on built-in scenes
  tagmask paper methods --out paper --seeds 3              three random seeds: mean ± standard deviation
  tagmask paper ablation --preset voc --root VOCdevkit/VOC2012 --score-split train --out paper
  tagmask paper ablation --out paper --rows none both      without the two rows between
  tagmask paper layers --config paper/ablation.toml --out paper    with the settings of another table
  tagmask paper maps --out paper --train.steps 200 --seeds.size 96 --pictures 6

also: --preset NAME   start from a named recipe: those of `tagmask run`; default: scenes, where --data is not given
      --config FILE   start from the settings of another table, or a run's config.toml
      --STAGE.NAME    any setting of a stage, as `tagmask STAGE --help` lists them
"""
