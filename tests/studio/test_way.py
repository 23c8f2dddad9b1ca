"""The whole way in a browser: from an untagged folder to exported masks, without a terminal."""

import json
import re
from pathlib import Path
from typing import Any

from PIL import Image

from tagmask.config import StudioSettings
from tagmask.data.scenes.catalog import Scenes
from tagmask.studio.opening import open_studio
from tests.studio.conftest import looking, serving

# the preset for own photos with a tiny network, in seconds
QUICK = (
    "--train.freeze 2 --train.size 64 --train.object-blocks 1 3 --train.object-size 64 "
    "--seeds.affinity-blocks 2 3 --segment.head-blocks 1 3 --segment.size 64 --segment.steps 40 "
    "--predict.no-crf --no-estimate"
)
COUNT = 10


def test_from_an_untagged_folder_to_exported_masks(browser: Any, tmp_path: Path) -> None:
    scenes = Scenes(COUNT, seed=5)
    photos = tmp_path / "photos"
    photos.mkdir()
    wanted: dict[str, list[int]] = {}
    for i in range(COUNT):
        Image.fromarray(scenes.load_image(i)).save(photos / f"{i}.jpg")
        # two tags are enough to go the way
        tag = "left" if scenes.tags(i)[0] < 5 else "right"
        wanted.setdefault(tag, []).append(i)
    studio = open_studio(StudioSettings(folder=photos, backbone="tagmask_tiny", flags=QUICK))
    with serving(studio) as server, looking(browser, server) as look:
        page = look.page
        assert look.get("get().route.step") == "tag"
        for tag, indices in wanted.items():
            page.click(f"#card-{indices[0]}")
            for i in indices[1:]:
                page.click(f"#card-{i}", modifiers=["Control"])
            page.fill("#tag-field", tag)
            page.press("#tag-field", "Enter")
        look.saved()
        table = (tmp_path / "photos-tagmask/tags.csv").read_text()
        assert table.splitlines()[1] == f"0.jpg,{'left' if 0 in wanted['left'] else 'right'}"
        page.click("#to-run")
        page.click("#start-run")
        look.until("['done', 'failed'].includes(studio.get().server.job.state)", 300)
        assert look.get("get().server.job.state") == "done", look.get("get().server.job.why")
        look.until(f"studio.get().server.masks.length === {COUNT}")
        page.click("#to-review")
        look.until("studio.view.grid")
        page.locator(".grid").focus()
        page.keyboard.press("Enter")
        page.keyboard.press("e")
        look.until("studio.get().open")
        photo = look.get("get().open.id")
        page.keyboard.press("b")
        look.click(0.5, 0.5)
        look.saved()
        page.click("#learn")
        look.until("['learnt', 'failed'].includes(studio.get().server.learning.state)", 120)
        assert look.get("get().server.learning.state") == "learnt"
        assert re.search(r"Accept: \d+ photos? change", page.inner_text("#accept"))
        page.click("#accept")
        look.until("['accepted', 'failed'].includes(studio.get().server.learning.state)", 120)
        assert look.get("get().server.learning.state") == "accepted"
        page.keyboard.press("Enter")
        look.until(f"studio.get().server.checked.includes({photo})")
        look.saved()
        assert look.get("get().server.checked.length") == 2
        page.click("[data-step=export]")
        page.check("#only-checked")
        page.click("[data-format=coco]")
        look.until("document.getElementById('exported').textContent.startsWith('Written')", 60)
        name = re.search(r"coco\S*\.json", page.inner_text("#exported"))
        assert name is not None
        written = json.loads((tmp_path / "photos-tagmask/exports" / name[0]).read_text())
        assert len(written["images"]) == 2
        assert [one["name"] for one in written["categories"]] == ["left", "right"]
    assert sorted(file.name for file in photos.iterdir()) == [f"{i}.jpg" for i in range(COUNT)]
