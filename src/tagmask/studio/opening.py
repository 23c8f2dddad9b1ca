"""Opening a studio: on a folder of photos, a run, two runs, or a single photo."""

import dataclasses
from pathlib import Path

from tagmask import layout
from tagmask.config import ExploreSettings, MapSettings, StudioSettings, check, settings_from
from tagmask.data.catalog import Catalog
from tagmask.data.images import read_image
from tagmask.inference.maps import predicted_classes
from tagmask.models.kinds import load_classifier
from tagmask.runs.images import match_classes, split_tags
from tagmask.studio.app import Studio
from tagmask.studio.tags import TABLE_OF_RUN
from tagmask.studio.view import RunView, view_of


def open_studio(settings: StudioSettings) -> Studio:
    """Open the studio of a folder, or of the run that is named instead of one."""
    check(settings)
    folder = settings.folder
    assert folder is not None
    if layout.is_run(folder) and (folder / layout.CONFIG).is_file():
        own = folder / TABLE_OF_RUN
        images = view_of(folder).run.images if own.is_file() else None
        if images is None:
            return Studio([view_of(folder)], folder.resolve().name)
        # the run of a folder: go on with the folder
        settings = dataclasses.replace(settings, folder=images, out=folder)
    elif settings.out is None:
        settings = dataclasses.replace(settings, out=default_out(folder))
    out = settings.out
    assert out is not None and settings.folder is not None  # noqa: PT018
    views = [view_of(out)] if (out / layout.CONFIG).is_file() else []
    return Studio(views, settings.folder.resolve().name, settings)


def default_out(folder: Path) -> Path:
    """Return the folder beside the photos that the studio writes to."""
    absolute = folder.resolve()
    return absolute.with_name(f"{absolute.name}-tagmask")


def open_explorer(settings: ExploreSettings) -> Studio:
    """Open the page of a run, two runs, or a photo."""
    check(settings)
    if settings.out is not None:
        views = [view_of(settings.out)]
        if settings.against is not None:
            views.append(view_of(settings.against))
        return Studio(views, settings.out.resolve().name)
    # without a run both are given: it was checked above
    photo = settings.photo or Path()
    folder = settings.model or Path()
    model = load_classifier(folder)
    image = read_image(photo)
    names = split_tags(settings.tags)
    if names is not None:
        tags = match_classes(names, model)
    else:
        tags = predicted_classes(model, image, settings_from(MapSettings, model.use, {}))
    catalog = Catalog(model.classes, [photo.stem], [tags], images=[photo.absolute()])
    return Studio([RunView(catalog, folder)], photo.name)
