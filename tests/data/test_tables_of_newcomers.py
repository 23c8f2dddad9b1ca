"""Tables as people have them: each is understood, or answered with what to write instead."""

from pathlib import Path

import pytest
from PIL import Image

from tagmask.data.folder import read_folder
from tagmask.errors import TagmaskError
from tagmask.exchange.numbers import COLUMNS

TAGS = {"a.jpg": ("cat",), "sub/b.jpg": ("cat", "dog"), "c.jpg": ("dog",)}


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    for name in TAGS:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8)).save(folder / name)
    return folder


def tags_of(images: Path, table: Path) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
    """Return the tags of each photo, and the notes, of a table."""
    catalog = read_folder(images, table)
    read = {}
    for i in range(len(catalog)):
        path = catalog.item(i).image
        assert isinstance(path, Path)
        name = path.relative_to(images).as_posix()
        read[name] = tuple(catalog.classes[number] for number in catalog.tags(i))
    return read, tuple(catalog.notes)


LINES = "file,tags\na.jpg,cat\nsub/b.jpg,cat;dog\nc.jpg,dog\n"
UNDERSTOOD = {
    "Excel's UTF-8": ("t.csv", LINES.encode("utf-8-sig")),
    "Excel's Unicode text": ("t.txt", LINES.replace(",", "\t").encode("utf-16")),
    "UTF-16, the other order of bytes": ("t.csv", b"\xfe\xff" + LINES.encode("utf-16-be")),
    "tabs": ("t.csv", LINES.replace(",", "\t").encode()),
    "a German spreadsheet": ("t.csv", b'file;tags\na.jpg;cat\nsub/b.jpg;"cat;dog"\nc.jpg;dog\n'),
    "a line for Excel": ("t.csv", b'sep=;\r\nfile;tags\r\na.jpg;cat\r\nsub/b.jpg;cat|dog\r\nc.jpg;dog\r\n'),
    "empty columns": ("t.csv", b"file,tags,,\na.jpg,cat,,\nsub/b.jpg,cat;dog,,\nc.jpg,dog,,\n"),
    "x": ("t.csv", b"file,cat,dog\na.jpg,x,\nsub/b.jpg,X,x\nc.jpg,,x\n"),
    "yes and no": ("t.csv", b"file,cat,dog\na.jpg,yes,no\nsub/b.jpg,yes,Yes\nc.jpg,no,yes\n"),
    "True and False": ("t.csv", b"file,cat,dog\na.jpg,True,False\nsub/b.jpg,True,True\nc.jpg,False,True\n"),
    "x in German": ("t.csv", b"Foto;cat;dog\na.jpg;x;\nsub/b.jpg;X;x\nc.jpg;;x\n"),
    "an image's name": ("t.csv", b"Image name,species\na.jpg,cat\nsub/b.jpg,cat;dog\nc.jpg,dog\n"),
    "German decimals": ("t.csv", b"file;cat;dog\na.jpg;1,0;0,0\nsub/b.jpg;1,0;1,0\nc.jpg;0,0;1,0\n"),
    "upper case": ("t.csv", LINES.replace("jpg", "JPG").encode()),
    "no suffixes": ("t.csv", LINES.replace(".jpg", "").encode()),
    "other names in JSON": (
        "t.json",
        b'[{"image": "a.jpg", "label": ["cat"]}, {"image": "sub/b.jpg", "label": ["cat", "dog"]}, '
        b'{"image": "c.jpg", "label": ["dog"]}]',
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", UNDERSTOOD)
def test_is_understood(case: str, photos: Path, tmp_path: Path) -> None:
    name, data = UNDERSTOOD[case]
    (tmp_path / name).write_bytes(data)
    assert tags_of(photos, tmp_path / name) == (TAGS, ())


@pytest.mark.parametrize(
    "start", ["photos/", "photos\\", "C:\\Users\\anna\\photos\\", "/home/anna/"]
)
def test_paths_of_another_folder(start: str, photos: Path, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(
        f"file,tags\n{start}a.jpg,cat\n{start}sub/b.jpg,cat;dog\n{start}c.jpg,dog\n"
    )
    read, notes = tags_of(photos, tmp_path / "t.csv")
    assert read == TAGS
    assert len(notes) == 1
    assert "from another folder" in notes[0]
    assert f"a.jpg for {start}a.jpg" in notes[0]


def test_paths_whose_ends_are_not_clear(photos: Path, tmp_path: Path) -> None:
    """Two entries that end alike would be the same photo: nothing is guessed."""
    (tmp_path / "t.csv").write_text("file,tags\nx/a.jpg,cat\ny/a.jpg,dog\n")
    with pytest.raises(TagmaskError, match="none of the 2 images"):
        read_folder(photos, tmp_path / "t.csv")


READ_AS = 'the columns "{}" and "{}" were read as file and tags.'
COMMA = '"cat, dog" was read as several tags; a tag itself has no comma.'
NOTED = {  # a table, and the note on how it was read
    'file,tags\na.jpg,cat\nsub/b.jpg,"cat, dog"\nc.jpg,dog\n': [COMMA],
    "file;tags\na.jpg;cat\nsub/b.jpg;cat, dog\nc.jpg;dog\n": [COMMA],
    "tags,file\ncat,a.jpg\ncat;dog,sub/b.jpg\ndog,c.jpg\n": [READ_AS.format("file", "tags")],
    ",file,tags\n0,a.jpg,cat\n1,sub/b.jpg,cat;dog\n2,c.jpg,dog\n": [READ_AS.format("file", "tags")],
    "Datei;Motiv;Notiz\na.jpg;cat;\nsub/b.jpg;cat, dog;\nc.jpg;dog;\n": [
        READ_AS.format("Datei", "Motiv"),
        COMMA,
    ],
    "Dateiname;Klasse;Anzahl\na.jpg;cat;3\nsub/b.jpg;cat|dog;2\nc.jpg;dog;1\n": [
        f'{READ_AS.format("Dateiname", "Klasse")[:-1]}; not read: "Anzahl".'
    ],
    "File name,Animal(s),Notes\na.jpg,cat,wet\nsub/b.jpg,cat;dog,wet\nc.jpg,dog,\n": [
        f'{READ_AS.format("File name", "Animal(s)")[:-1]}; not read: "Notes".'
    ],
    "file,tags,author\na.jpg,cat,me\nsub/b.jpg,cat;dog,me\nc.jpg,dog,you\n": [
        f'{READ_AS.format("file", "tags")[:-1]}; not read: "author".'
    ],
    "Nr,Datum,Kamerabild,Bemerkung\n"
    "1,1.5.2024,a.jpg,cat\n2,1.5.2024,sub/b.jpg,cat|dog\n3,2.5.2024,c.jpg,dog\n"
    "4,2.5.2024,none.jpg,dog\n": [
        f'{READ_AS.format("Kamerabild", "Bemerkung")[:-1]}; not read: "Nr", "Datum".',
        "1 image was listed but not found and left out: none.jpg.",
    ],
    "file,cat,dog\na.jpg,3,0\nsub/b.jpg,1,2\nc.jpg,0,12\n": [
        'the columns "cat", "dog" hold counts up to 12; above 0 a photo has the tag.'
    ],
    "file,tags\nA.JPG,cat\nsub/B.jpg,cat;dog\nc.jpg,dog\n": [
        "2 names in the table differ from their photos in capitals alone and were taken for them: "
        "a.jpg for A.JPG, sub/b.jpg for sub/B.jpg."
    ],
    "Photo;What is on it\na.jpg;cat\nsub/b.jpg;cat, dog\nc.jpg;dog\n": [
        READ_AS.format("Photo", "What is on it"),
        COMMA,
    ],
}


@pytest.mark.parametrize("text", NOTED)
def test_is_read_with_a_note(text: str, photos: Path, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(text)
    assert tags_of(photos, tmp_path / "t.csv") == (TAGS, tuple(NOTED[text]))


@pytest.mark.parametrize("marks", ["ja nein", "Oui Non", "sí no", "sim não", "WAHR FALSCH"])
def test_marks_in_other_languages(marks: str, photos: Path, tmp_path: Path) -> None:
    yes, no = marks.split()
    rows = [f"a.jpg,{yes},{no}", f"sub/b.jpg,{yes},{yes}", f"c.jpg,{no},{yes}"]
    text = "\n".join(["file,cat,dog", *rows]) + "\n"
    (tmp_path / "t.csv").write_text(text, encoding="utf-8")
    assert tags_of(photos, tmp_path / "t.csv")[0] == TAGS


@pytest.mark.parametrize("header", ["file", "pic"])
def test_marks_are_no_tags(header: str, photos: Path, tmp_path: Path) -> None:
    """The cells of a column for one class say whether it is there; "x" is no tag."""
    (tmp_path / "t.csv").write_text(f"{header},cat\na.jpg,x\nsub/b.jpg,x\nc.jpg,\n")
    if header == "file":
        assert tags_of(photos, tmp_path / "t.csv")[0]["a.jpg"] == ("cat",)
        return
    with pytest.raises(TagmaskError, match="header"):
        read_folder(photos, tmp_path / "t.csv")


def test_a_tag_with_a_comma_beside_another_separator(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('file,tags\na.jpg,"cat, old"\nsub/b.jpg,cat;dog\nc.jpg,dog\n')
    read, notes = tags_of(photos, tmp_path / "t.csv")
    assert read["a.jpg"] == ("cat, old",)
    assert notes == ('"cat, old" is one tag; several tags of a photo are separated by ";".',)


def test_photos_that_no_row_lists(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("file,tags\na.jpg,cat\nc.jpg,dog\n")
    _, notes = tags_of(photos, tmp_path / "t.csv")
    assert notes == ("1 photo is not in t.csv and left out: sub/b.jpg.",)


def test_photos_in_heic_are_left_out_until_they_can_be_read(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run sees other names then, and makes its stages again."""
    (photos / "d.HEIC").write_bytes(b"none")
    (tmp_path / "t.csv").write_text(LINES + "d.HEIC,dog\n")
    monkeypatch.setattr("tagmask.data.images._usable", lambda formats: ("JPEG", "PNG"))
    read, (note,) = tags_of(photos, tmp_path / "t.csv")
    assert read == TAGS
    assert note.startswith("1 photos in HEIC were left out: d.HEIC; to read them, install pi-heif")
    without = read_folder(photos, tmp_path / "t.csv").fingerprint()
    monkeypatch.setattr("tagmask.data.images._usable", lambda formats: ("JPEG", "PNG", "HEIF"))
    assert read_folder(photos, tmp_path / "t.csv").fingerprint() != without


ANSWERED = {
    "file,tags\na.jpg,cat,dog\n": 'write several tags of a photo as "dog;cat"',
    "tags,file\ncat,\n": "swap the columns",
    ",file,tags\n0,a.jpg\n": "remove the first column, which has no name",
    "Datei,Motiv,Ort\na.jpg,cat,Rome\n": 'call the one with the tags "tags", and the others are not',
    "Datei;Motiv;Ort\na.jpg;cat;Rome\n": 'the header "file;tags", then "001.jpg;dog|cat"',
    "Wer;Motiv;Ort\na.jpg;cat;Rome\n": 'the header must be "file;tags"',
    "Wer;Motiv;Ort\nb.jpg;cat;Rome\n": 'not "Wer;Motiv;Ort"; call the columns of photos and tags',
    "file,tag1,tag2,n\na.jpg,cat,,3\nc.jpg,cat,dog,1\n": 'the columns "tag1", "tag2" hold words',
    "file;cat;note\na.jpg;1;old\nc.jpg;0;old\n": 'the column "note" holds words, not 0 and 1',
    "file,tag1,tag2\na.jpg,cat,dog\n": 'the columns "tag1", "tag2" hold words, not 0 and 1',
    "file,tags\na.jpg,cat\na.jpg,dog\n": 'keep one of the two, with all tags: "cat;dog"',
    "file,tags\na.HEIC,cat\n": "a.jpg is there: correct the suffixes in the table",
    "file,cat,dog\na.jpg,0.93,0.07\n": '"0.93" in the column "cat"; write 0 or 1',
    "file,cat,dog\na.jpg,1,yes\n": '"yes" in the column "dog"; write 0 or 1',
}


@pytest.mark.parametrize("text", ANSWERED)
def test_is_answered(text: str, photos: Path, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(TagmaskError) as caught:
        read_folder(photos, tmp_path / "t.csv")
    assert ANSWERED[text] in str(caught.value)
    assert "t.csv" in str(caught.value)


def test_a_spreadsheet(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "t.xlsx").write_bytes(b"PK")
    with pytest.raises(TagmaskError, match='Save the spreadsheet as "CSV UTF-8" first'):
        read_folder(photos, tmp_path / "t.xlsx")


def test_text_of_another_encoding(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes("file,tags\na.jpg,Kätzchen\n".encode("cp1252"))
    with pytest.raises(TagmaskError, match='in a spreadsheet: "CSV UTF-8"'):
        read_folder(photos, tmp_path / "t.csv")


def test_a_tag_that_is_no_list(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text('{"a.jpg": "cat"}')
    with pytest.raises(TagmaskError, match=r'write \["cat"\]'):
        read_folder(photos, tmp_path / "t.json")


def test_photos_without_tags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    images = Path("photos")
    images.mkdir()
    with pytest.raises(TagmaskError, match="There are no photos in the folder"):
        read_folder(images, None)
    Image.new("RGB", (8, 8)).save(images / "a.jpg")
    with pytest.raises(TagmaskError, match="`tagmask studio photos` tags photos in the browser"):
        read_folder(images, None)
    Path("my tags.csv").write_text(LINES)
    with pytest.raises(TagmaskError, match=r"Is my tags\.csv the table\?") as caught:
        read_folder(images, None, out=Path("m/my run"))
    assert "`tagmask run photos 'my tags.csv' --out 'm/my run'`" in str(caught.value)


def test_a_table_that_was_exported_is_not_suggested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of others the one counts that names the photos."""
    monkeypatch.chdir(tmp_path)
    images = Path("photos")
    images.mkdir()
    Image.new("RGB", (8, 8)).save(images / "a.jpg")
    Path("areas.csv").write_text(",".join(COLUMNS) + "\na,cat\n")
    Path("areas.tsv").write_text("\t".join(COLUMNS) + "\na\tcat\n")
    Path("areas.summary.csv").write_text("group,value,class,photos\nall,,cat,1\n")
    with pytest.raises(TagmaskError, match="`tagmask studio photos`"):
        read_folder(images, None)
    Path("budget.csv").write_text("what,euros\ncamera,300\n")
    Path("my list.csv").write_text('name;what\n"a.jpg";cat\n')
    with pytest.raises(TagmaskError, match=r"Is my list\.csv the table\?"):
        read_folder(images, None)


def test_names_that_differ_in_capitals_from_two_photos(photos: Path, tmp_path: Path) -> None:
    """Neither is meant more than the other."""
    for name in ("D.jpg", "d.jpg"):
        Image.new("RGB", (8, 8)).save(photos / name)
    if len(list(photos.glob("*.jpg"))) < 4:
        pytest.skip("this disk takes capitals for small letters")
    (tmp_path / "t.csv").write_text("file,tags\na.jpg,cat\nd.JPG,dog\n")
    assert tags_of(photos, tmp_path / "t.csv")[0] == {"a.jpg": ("cat",), "d.jpg": ("dog",)}
    for name in ("Ee.jpg", "eE.jpg"):
        Image.new("RGB", (8, 8)).save(photos / name)
    (tmp_path / "t.csv").write_text("file,tags\na.jpg,cat\nee.jpg,dog\n")
    read, notes = tags_of(photos, tmp_path / "t.csv")
    assert read == {"a.jpg": ("cat",)}
    assert notes[0].startswith("1 image was listed but not found and left out: ee.jpg")


@pytest.mark.parametrize(
    ("rare", "frequent", "is_told"),
    [
        ("hores", "horse", True),
        ("Hores", "horse", True),
        ("horses", "horse", True),
        ("shepe", "sheep", True),
        ("wheelbarow", "wheelbarrow", True),
        ("goat", "horse", False),
        ("cat", "car", False),
        ("plot 1", "plot 2", False),
        ("Horse", "horse", False),  # has a note of its own
    ],
)
def test_a_rare_tag_that_is_spelt_almost_like_another(
    rare: str, frequent: str, is_told: bool, tmp_path: Path
) -> None:
    lines = ["file,tags"]
    for i in range(10):
        Image.new("RGB", (8, 8)).save(tmp_path / f"{i}.jpg")
        lines.append(f"{i}.jpg,{rare if i == 0 else frequent}")
    (tmp_path / "t.csv").write_text("\n".join(lines))
    notes = read_folder(tmp_path, tmp_path / "t.csv").notes
    told = f'"{rare}" (1 photo) may be "{frequent}" (9) misspelt; if so, correct it'
    assert any(note.startswith(told) for note in notes) is is_told
    # with as many photos of both, neither is a slip
    (tmp_path / "t.csv").write_text(f"file,tags\n0.jpg,{rare}\n1.jpg,{frequent}\n")
    notes = read_folder(tmp_path, tmp_path / "t.csv").notes
    assert not any("misspelt" in note for note in notes)
