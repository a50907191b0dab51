"""The commands: options with defaults, exit codes, what is written (DESIGN.md, section 4)."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path, PurePath

import pyarrow.parquet as pq
import pytest

from snaps.cli import main

from .files import write_graph
from .graphs import setting

# NAME is an argument and [NAME] one that may be left out; --name! must be given, --name= has no
# default, --name=... may be repeated; --name alone is a flag.
_SEARCH = "--neighbours= --recall= --candidates="
_INPUT = "--group-by= --classes= --weighted --logits --json"
_PROMISE = "--class-floor= --group-floor= --chances= --confidence="
COMMANDS = {
    "": "--version --debug",
    "predict": "FOLDER --out! --alpha= --with= --method= --score= --k= --weights= "
    "--class-conditional --missing= --threshold= --save= --memory= --seed= --engine=local "
    f"--master= --empty=keep --decide= --otherwise= {_SEARCH} {_INPUT} {_PROMISE}",
    "check": "FOLDER --alpha= --with= --method= --score= --k= --weights= --class-conditional "
    f"--missing= --threshold= --seed= {_SEARCH} {_INPUT} {_PROMISE}",
    "select": "FOLDER --label! --fdr=0.1 --out! --alpha= --with= --method= --score= --k= "
    "--weights= --class-conditional --missing= --threshold= --seed= "
    f"{_SEARCH} {_INPUT} {_PROMISE}",
    "accept": "FOLDER --error=0.02 --out! --alpha= --with= --method= --score= --k= --weights= "
    f"--class-conditional --missing= --threshold= --seed= {_SEARCH} {_INPUT} {_PROMISE}",
    "calibrate": "FOLDER --out! --alpha= --method= --score= --k= --weights= "
    f"--class-conditional --data --seed= {_SEARCH} {_INPUT} {_PROMISE}",
    "evaluate": "FOLDER --splits/--n-splits=100 --alpha=... --calib/--n-calib= --goal= --k= "
    f"--chances= --smoothed --classes= --weighted --logits --seed= --json {_SEARCH}",
    "report": "FOLDER --out! --show=... --alpha= --with= --method= --score= --k= --weights= "
    f"--class-conditional --missing= --threshold= --seed= {_SEARCH} {_INPUT} {_PROMISE}",
    "plan": "--alpha=0.05 --within=0.01 --nodes= --confidence=0.9 --plot= --json",
    "draw": "FOLDER --out! --nodes= --chances= --seed= --json",
    "label": "FOLDER FILE --allow-missing --json",
    "watch": "MODEL FOLDER --labels! --alarm=0.01 --state= --missing= --threshold= --plot= "
    "--classes= --weighted --logits --json",
    "demo": "--out=demo --nodes=3000 --alpha=0.05 --seed= --json",
    "reproduce": "TABLE --datasets= --file=... --models=10 --splits=100 --seed=0 --as-authors "
    "--data-dir= --out=results --page= --runs= --jobs= --json",
    "datasets": "",
    "datasets list": "--data-dir= --json",
    "datasets fetch": "NAMES --mirror=",
    "datasets verify": "[NAMES] --data-dir= --json",
}
METHODS, SCORES = "snaps|pooled|daps|split", "aps|raps|saps|thr"
SEARCHES = "auto|exact|approximate"
CHOICES = {
    "check": (METHODS, SCORES, SEARCHES),
    "predict": (METHODS, SCORES, SEARCHES, "local|spark"),
    "select": (METHODS, SCORES, SEARCHES),
    "accept": (METHODS, SCORES, SEARCHES),
    "calibrate": (METHODS, SCORES, SEARCHES),
    "evaluate": (SEARCHES, "smallest|singletons|classes|sizes"),
    "report": (METHODS, SCORES, SEARCHES),
}
DESCRIPTION = [
    "method", "score", "alpha", "seed", "weights", "neighbours", "threshold", "calibration_nodes",
    "tuning_nodes", "classes",
]  # fmt: skip
SUMMARY = [
    "sets", "size", "singletons", "empty", "labelled", "coverage", "coverage_interval", "inside",
    "tied", "upper_binds", "singleton_hit", "class_coverage", "group_coverage", "class_promise",
    "group_promise", "weakest_class",
    "exchangeability",
]  # fmt: skip


def program():
    """The program; the only place here that knows where it is."""
    from snaps.cli._app import add_commands, app

    add_commands()
    return app


def declared(command, name=""):
    """The commands below a command, and the options of each, written as in `COMMANDS`."""
    options = [spelled(each) for each in command.params if "completion" not in each.name]
    below = {name: sorted(options)}
    for part, inner in getattr(command, "commands", {}).items():
        below |= declared(inner, f"{name} {part}".strip())
    return below


def spelled(parameter) -> str:
    if parameter.param_type_name == "argument":
        name = parameter.name.upper()
        return name if parameter.required else f"[{name}]"
    name = "/".join(parameter.opts)
    if parameter.required:
        return f"{name}!"
    if parameter.is_flag:
        return name
    if parameter.multiple:
        return f"{name}=..."
    value = getattr(parameter.default, "value", parameter.default)  # of an enumeration
    return f"{name}={value if isinstance(value, (int, float, str, PurePath)) else ''}"


def test_commands_and_options():
    expected = {name: sorted(options.split()) for name, options in COMMANDS.items()}
    if importlib.util.find_spec("snaps_lab") is None:  # whose command it is
        expected["reproduce"] = []
    assert declared(program()) == expected


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    """A graph folder that commands read, with classes 0, 1, ... and numbered nodes."""
    return write_graph(tmp_path_factory.mktemp("graph") / "g", setting("words"))


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    """Run a command in this process and an empty folder: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        return ended.value.code, *capsys.readouterr()

    return call


@pytest.mark.parametrize("command", CHOICES)
def test_choices(run, command):
    code, text, _ = run(command, "--help")
    assert code == 0 and [each for each in CHOICES[command] if each not in text] == []


GOOD = {
    "predict": ("GRAPH", "--out", "sets.parquet"),
    "calibrate": ("GRAPH", "--out", "model.snaps"),
    "evaluate": ("GRAPH", "--splits", 3),
    "report": ("GRAPH", "--out", "report.html"),
    "check": ("GRAPH",),
    "demo": ("--help",),
    "datasets": ("list",),
    "reproduce": ("--help",),
}
BAD = {
    "predict": ("nowhere", "--out", "sets.parquet"),
    "calibrate": ("GRAPH", "--out", "model.snaps", "--alpha", 2),
    "evaluate": ("GRAPH", "--splits", 0),
    "report": ("GRAPH", "--out", "report.txt"),
    "check": ("nowhere",),
    "demo": ("--nodes", 5),
    "datasets": ("list", "--nothing"),
    "reproduce": ("table0",),
}


@pytest.mark.parametrize("command", GOOD)
def test_good_calls_end_with_0(run, graph, command):
    code, out, notes = run(command, *(graph if each == "GRAPH" else each for each in GOOD[command]))
    assert (code, notes) == (0, "") and out
    written = [each for each in GOOD[command] if "." in str(each)]
    assert sorted(path.name for path in Path().iterdir()) == written


@pytest.mark.parametrize("command", BAD)
def test_bad_calls_end_with_2_and_a_line(run, graph, command):
    code, out, notes = run(command, *(graph if each == "GRAPH" else each for each in BAD[command]))
    assert (code, out) == (2, "")
    assert notes.startswith("snaps: error: ") and notes.count("\n") == 1
    assert not [path for path in Path().rglob("*") if path.is_file()]


def test_a_command_that_does_not_exist(run):
    code, out, notes = run("nothing")
    assert (code, out) == (2, "") and notes.startswith("snaps: error: ")
    assert run("--version")[0] == run()[0] == 0


def types(path):
    schema = pq.read_schema(path)
    return {field.name: str(field.type).replace("element", "item") for field in schema}


@pytest.mark.parametrize("name, ids, labels", [("words", "int64", "int32"),
                                               ("dense", "string", "string")])  # fmt: skip
def test_the_file_of_sets(run, name, ids, labels, tmp_path):
    folder = write_graph(tmp_path / "g", setting(name))
    assert run("predict", folder, "--method", "split", "--out", "sets.parquet")[0] == 0
    assert types("sets.parquet") == {"id": ids, "labels": f"list<item: {labels}>", "size": "int32"}
    metadata = pq.read_schema("sets.parquet").metadata
    assert sorted(metadata) == [
        b"snaps.alpha", b"snaps.calibration_nodes", b"snaps.inputs", b"snaps.method",
        b"snaps.score", b"snaps.seed", b"snaps.tuning_nodes", b"snaps.version",
    ]  # fmt: skip
    sets = pq.read_table("sets.parquet").to_pylist()
    given = setting(name)
    assert len(sets) == len(given.labels) - len(given.train) - len(given.calib)
    assert all(len(row["labels"]) == row["size"] for row in sets)


def test_the_files_of_a_folder(tmp_path):
    """How nodes and edges are written; features are a list, or a file of their own if sparse."""
    words = write_graph(tmp_path / "words", setting("words"))
    assert types(words / "nodes.parquet") == {
        "id": "int64", "probs": "large_list<item: double>", "label": "int64", "role": "string",
    }  # fmt: skip
    assert types(words / "edges.parquet") == {"src": "int64", "dst": "int64"}
    assert (words / "features.npz").is_file()
    dense = write_graph(tmp_path / "dense", setting("dense"))
    columns = {f"p_class {letter}": "double" for letter in "zbyaxc"}
    assert types(dense / "nodes.parquet") == {
        "id": "string", **columns, "label": "string", "role": "string",
        "features": "large_list<item: float>",
    }  # fmt: skip
    weighted = write_graph(tmp_path / "weighted", setting("weighted"))
    assert types(weighted / "edges.parquet") == {
        "src": "int64", "dst": "int64", "weight": "double",
    }  # fmt: skip


KEYS = {
    "predict": ["out", *DESCRIPTION, "version", "inputs", *SUMMARY, "seconds", "peak_memory"],
    "calibrate": ["out", *DESCRIPTION, "version", "inputs"],
    "report": ["out", "nodes", *DESCRIPTION, "version", "inputs"],
    "evaluate": ["version", "inputs", "seed", "splits", "results"],
    "check": ["folder", "found", "plan", "missing", "notes", "ready", "version", "inputs"],
}


@pytest.mark.parametrize("command", KEYS)
def test_keys_of_json(run, graph, command):
    given = [graph if each == "GRAPH" else each for each in GOOD[command]]
    code, out, notes = run(command, *given, "--json")
    assert (code, notes) == (0, "")
    result = json.loads(out)
    assert list(result) == KEYS[command]
    if command == "evaluate":
        assert list(result["results"][0]) == [
            "alpha", "method", "coverage", "size", "size_nonempty", "singleton_hit", "empty",
            "threshold", "n_calib", "n_test",
        ]  # fmt: skip
