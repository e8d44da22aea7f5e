"""The zoo stands on the public seam alone, is loaded when asked for, and admits encoders by what they can
do.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import forked as subprocess
import pytest
import torch

import halp.extend
import halp.zoo
from halp.core.errors import InputError
from halp.encoders import ENCODERS, EncoderSettings
from halp.encoders.transformer import TransformerEncoder, TransformerSettings
from halp.methods import METHODS, BuildContext
from halp.skeleton import KINECT_V1

FILES = sorted(Path(halp.zoo.__file__).parent.glob("*.py"))
PUBLIC = ("halp.extend", "halp.losses", "halp.sphere", "halp.hallucinate", "halp.zoo")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_system_imports_nothing_private(file: Path) -> None:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names = [node.module or ""]
            if node.module == "halp.extend":
                assert {alias.name for alias in node.names} <= set(halp.extend.__all__)
        for name in names:
            assert name.partition(".")[0] != "halp" or name in PUBLIC or name.startswith("halp.zoo."), name
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("halp"):
            assert not any(alias.name.startswith("_") for alias in node.names)


def test_core_recipes_do_not_load_the_zoo_and_others_do() -> None:
    program = (
        "import sys\n"
        "from halp.training import load_recipe\n"
        "load_recipe('ntu60-halp'), load_recipe('small-halp-cmd')\n"
        "assert not any(name.startswith('halp.zoo') for name in sys.modules), 'the zoo was loaded'\n"
        "assert load_recipe('small-mochi').terms == ('mochi',)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_every_name_of_the_public_seam_is_there() -> None:
    for name in halp.extend.__all__:
        assert getattr(halp.extend, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'register_dance'"):
        halp.extend.register_dance  # noqa: B018


def context(encoder: EncoderSettings) -> BuildContext:
    return BuildContext(KINECT_V1, 1, 8, {"joint": encoder}, {}, torch.Generator())


def test_methods_admit_encoders_by_ability_whatever_they_are_called() -> None:
    ENCODERS.register("my-transformer", TransformerSettings)(TransformerEncoder)
    try:
        mine = EncoderSettings("my-transformer", patch=4, width=8, layers=1, heads=2, frames=8)
        assert METHODS["masked"].build(METHODS["masked"].settings(), context(mine)).encoders()
        gru, stgcn = EncoderSettings("gru", hidden=4, layers=1), EncoderSettings("stgcn", output=8, stages=1)
        lstm = EncoderSettings("lstm", hidden=4)
        for admitted in (gru, lstm):
            assert METHODS["ms2l"].build(METHODS["ms2l"].settings(head=4), context(admitted)).encoders()
        for method, encoder, lacking in (
            ("masked", gru, "patches"),
            ("ms2l", stgcn, "frame_size"),
            ("displacement", mine, "frame_size"),
            ("motion-direction", gru, "hides_frames"),
            ("disentanglement", gru, "codes"),
        ):
            with pytest.raises(
                InputError, match=f"method '{method}' .* and encoder '{encoder.name}' has no '{lacking}'"
            ):
                METHODS[method].build(METHODS[method].settings(), context(encoder))
    finally:
        ENCODERS.remove("my-transformer")
