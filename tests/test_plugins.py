"""Components of somebody else, used as a stranger would: through the `halp` command and a file of one's
own.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import forked as subprocess
import pytest
from safetensors.numpy import load_file

pytestmark = pytest.mark.slow  # real processes

EXAMPLES = Path(__file__).parents[1] / "examples"
PLUGIN = str(EXAMPLES / "plugin.py")


def halp(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "halp", *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def succeed(*arguments: object, cwd: Path) -> str:
    answer = halp(*arguments, cwd=cwd)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


@pytest.fixture(scope="module")
def walks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store that the foreign reader made, two runs, and results of the foreign protocol."""
    folder = tmp_path_factory.mktemp("plugin")
    for number in range(40):
        file = folder / "walks" / ("slow" if number % 2 else "fast") / f"{number}.pace"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(str(0.03 if number % 2 else 0.2))
    succeed("prepare", "paces", "walks", "store", "--option", "frames=20", "--plugin", PLUGIN, cwd=folder)
    succeed("split", "store", "--by", "subject", "--folds", "2", cwd=folder)
    succeed(
        "pretrain",
        EXAMPLES / "plugin.toml",
        "--data",
        "store",
        "--run",
        "moco",
        "--plugin",
        PLUGIN,
        cwd=folder,
    )
    return folder


def test_a_reader_of_ones_own_has_options_and_labels(walks: Path) -> None:
    found = json.loads(succeed("inspect", "store", "--json", cwd=walks))
    text = json.dumps(found)
    assert '"fast": 20' in text
    assert '"slow": 20' in text
    options = ("--option", "upside_down=true", "classes=fast", "frames=6")
    succeed("prepare", "paces", "walks", "few", *options, "--plugin", PLUGIN, cwd=walks)
    assert '"fast": 20' in (few := succeed("inspect", "few", "--json", cwd=walks))
    assert "slow" not in few
    answer = halp("prepare", "paces", "walks", "again", "--option", "frame=20", "--plugin", PLUGIN, cwd=walks)
    assert answer.returncode == 2
    assert "did you mean 'frames'" in answer.stderr


def test_encoder_term_and_augmentation_of_ones_own_train_resume_and_are_evaluated(walks: Path) -> None:
    info = json.loads((walks / "moco" / "run.json").read_text())
    assert info["plugins"] == {"plugin.py": ["lean", "plane", "spread"]}
    lines = [json.loads(line) for line in (walks / "moco" / "metrics.jsonl").read_text().splitlines()]
    assert "joint/loss_spread" in lines[-1]
    assert "joint/embedding_std" in lines[-1]
    split = sorted(json.loads((walks / "store" / "store.json").read_text())["splits"])[0]
    options = ["--data", "store", "--split", split, "--protocol", "centroid", "--allow-overlap", "--json"]
    rows = json.loads(succeed("evaluate", "moco", *options, "--plugin", PLUGIN, cwd=walks))
    assert [result["protocol"] for result in rows["moco"]] == ["centroid"]
    assert rows["moco"][0]["accuracy"] >= 50


def test_a_method_of_ones_own_trains_from_a_recipe(walks: Path) -> None:
    (walks / "denoise.toml").write_text(
        'name = "denoise"\nmethod = "denoise"\nsplit = "all"\nepochs = 3\nbatch_size = 16\n[views]\nframes ='
        ' 16\ncrop_frames = 8\n[encoder]\nname = "plane"\nwidth = 8\n[denoise]\nnoise ='
        ' 0.1\n[optimizer]\nname = "adamw"\nschedule = "cosine"\nwarmup = 1\n[saving]\ncheckpoint_epochs ='
        " 1\nlog_every = 1\n"
    )
    whole = ["pretrain", "denoise.toml", "--data", "store", "--plugin", PLUGIN, "--accelerator", "cpu"]
    succeed(*whole, "--run", "denoised", cwd=walks)
    lines = (walks / "denoised" / "metrics.jsonl").read_text()
    assert '"gradient_norm"' in lines
    succeed(*whole, "--run", "two", "--devices", 2, cwd=walks)
    newest = [sorted((walks / run / "checkpoints").glob("step-*"))[-1] for run in ("denoised", "two")]
    one, both = (load_file(path / "model.safetensors") for path in newest)
    assert one
    for name, value in one.items():
        # BatchNorm2d and dropout give on two processes what they give on one
        assert abs(value - both[name]).max() < 1e-4, name


def test_what_was_made_with_a_plugin_says_so_when_it_is_missing(walks: Path) -> None:
    for command in (["evaluate", "moco", "--data", "store"], ["report", "moco"]):
        answer = halp(*command, cwd=walks)
        assert answer.returncode == 2
        assert "of plugin 'plugin.py', which is not loaded; add --plugin" in " ".join(answer.stderr.split())
    answer = halp("pretrain", EXAMPLES / "plugin.toml", "--data", "store", "--run", "x", cwd=walks)
    assert answer.returncode == 2
    assert "unknown" in answer.stderr
    assert not (walks / "x").exists()


@pytest.mark.parametrize(
    ("plugin", "words"),
    [
        ("nothere.py", "there is no such file"),
        ("no_such_module", "there is no module 'no_such_module'"),
        ("broken.py", "it fails when it is loaded (ZeroDivisionError"),
    ],
)
def test_plugins_that_cannot_be_loaded_get_one_sentence(tmp_path: Path, plugin: str, words: str) -> None:
    (tmp_path / "broken.py").write_text("1 / 0\n")
    answer = halp("recipes", "--plugin", plugin, cwd=tmp_path)
    assert answer.returncode == 2
    assert words in " ".join(answer.stderr.split())


def test_an_installed_package_is_found_by_its_entry_point(tmp_path: Path) -> None:
    (tmp_path / "guest_package.py").write_text(
        "from dataclasses import dataclass\nfrom torch import nn\nfrom halp.extend import register_encoder\n"
        "@dataclass(frozen=True)\nclass Settings:\n    size: int = 3\n"
        "@register_encoder('guest', Settings)\nclass Guest(nn.Module):\n    pass\n"
    )
    facts = tmp_path / "guest_package-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: guest-package\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[halp.plugins]\nguest = guest_package\n")
    program = "from halp.encoders import EncoderSettings, list_architectures as names; "
    program += "print(EncoderSettings('guest', size=5), names())"
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    answer = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    assert "size=5" in answer.stdout
    assert "'guest'" in answer.stdout


def test_nothing_is_imported_because_a_file_names_it(tmp_path: Path) -> None:
    (tmp_path / "evil.py").write_text("from pathlib import Path\nPath('executed').touch()\n")
    (tmp_path / "evil.toml").write_text(
        'name = "evil"\nmethod = "evil"\nplugins = ["evil.py"]\n[encoder]\nname = "evil"\n'
    )
    answer = halp("recipes", "evil.toml", cwd=tmp_path)
    assert answer.returncode == 2
    assert not (tmp_path / "executed").exists()
