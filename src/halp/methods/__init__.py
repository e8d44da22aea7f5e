"""Methods: what is trained. A recipe names one; momentum contrast is composed of streams and loss terms by name."""

from halp.methods import (  # noqa: F401  (they register themselves)
    aimclr,
    barlow,
    cmd,
    crossclr,
    disentanglement,
    displacement,
    halp,
    hiclr,
    infonce,
    isc,
    longt_gan,
    masked,
    mix,
    mochi,
    moco,
    motion_direction,
    ms2l,
    predict_cluster,
    self_distillation,
    tune,
    vicreg,
)
from halp.methods.aimclr import AimClrSettings
from halp.methods.barlow import BarlowSettings
from halp.methods.base import METHODS, BuildContext, Method, StepContext, StepOutput, list_methods, register_method
from halp.methods.cmd import CmdSettings
from halp.methods.crossclr import MiningSettings
from halp.methods.halp import HalpSettings
from halp.methods.hiclr import HiClrSettings
from halp.methods.masked import MaskedSettings
from halp.methods.mix import MixSettings
from halp.methods.mochi import MochiSettings
from halp.methods.moco import ContrastSettings, MocoMethod
from halp.methods.self_distillation import SelfDistillationSettings
from halp.methods.term import TERMS, StreamBatch, check_terms, list_terms, register_term
from halp.methods.tune import TuneMethod, TuneSettings
from halp.methods.two_views import TwoViewMethod
from halp.methods.vicreg import VicregSettings

__all__ = [
    "METHODS",
    "TERMS",
    "AimClrSettings",
    "BarlowSettings",
    "BuildContext",
    "CmdSettings",
    "ContrastSettings",
    "HalpSettings",
    "HiClrSettings",
    "MaskedSettings",
    "Method",
    "MiningSettings",
    "MixSettings",
    "MochiSettings",
    "MocoMethod",
    "SelfDistillationSettings",
    "StepContext",
    "StepOutput",
    "StreamBatch",
    "TuneMethod",
    "TuneSettings",
    "TwoViewMethod",
    "VicregSettings",
    "check_terms",
    "list_methods",
    "list_terms",
    "register_method",
    "register_term",
]
