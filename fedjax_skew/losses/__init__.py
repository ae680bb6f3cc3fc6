"""Loss kernels for federated learning under label skew, as pure functions of arrays.

Conventions:

- ``logits [..., C]``, integer ``labels [...]``, ``class_counts [C]`` (one client's samples of each
  class, integers or floats). Hyper-parameters are keyword-only.
- A loss of single examples returns ``[...]`` and leaves the mean to the caller. A loss that is a
  statistic of the batch takes ``where [B] | None``, the rows that count, and returns a scalar.
- A vacant class, one with count 0, drops out of a softmax by a mask on its logit. A label whose
  class has dropped out gives a loss of 0 with a gradient of 0: such a row can only be padding.
- Teachers, class centres and other models' features receive no gradient unless a docstring says so.
- Sums are taken in float32 or wider, and the result has that dtype: half-precision input gives
  float32, float64 input gives float64.
- Wrong shapes and dtypes raise a ``ValueError`` that names the argument, when the call is traced.

====================================  ==========================  ==================
kernel                                paper                       equation
====================================  ==========================  ==================
``fedlc``                             FedLC                       7
``logit_wasserstein``                 FedLC-LT                    1
``synthetic_logits``                  FedLC-LT                    2
``local_logit_calibration``           FedLC-LT                    3
``class_importance_weights``          FedLC-LT                    4
``ensemble_logits``                   FedLC-LT                    5, 6
``class_query``                       FedLC-LT                    7
``calibration_distillation``          FedLC-LT                    8
``balanced_softmax``                  FedVLS, logit adjustment    2
``vacant_class_distillation``         FedVLS                      3
``logit_suppression``                 FedVLS                      4, 5
``fedvls``                            FedVLS                      6
``adaptive_logit``                    FedLF                       3-5
``class_center``                      FedLF                       8, 9
``feature_decorrelation``             FedLF                       10-12
``fedlf``                             FedLF                       13
``unbalanced_softmax``                FedGR                       3, 4
``gravitation``                       FedGR                       9
``cross_entropy``
``restricted_softmax``                FedRS
``focal``                             focal loss
``calfat``                            CalFAT                      published code
``not_true_distillation``             FedNTD
``label_masking_distillation``        FedLMD, FedLMD-Tf
``distillation``                      FedDF, FedBE, FEDIC
``model_contrastive``                 MOON
``manifold_reshaping``                FedMR                       intra-class term
====================================  ==========================  ==================
"""

from fedjax_skew.losses.baselines import (
    balanced_softmax,
    calfat,
    cross_entropy,
    focal,
    restricted_softmax,
)
from fedjax_skew.losses.distill import (
    distillation,
    label_masking_distillation,
    not_true_distillation,
)
from fedjax_skew.losses.fedgr import gravitation, unbalanced_softmax
from fedjax_skew.losses.fedlc import fedlc
from fedjax_skew.losses.fedlc_lt import (
    class_importance_weights,
    local_logit_calibration,
    logit_wasserstein,
    synthetic_logits,
)
from fedjax_skew.losses.fedlc_lt_server import (
    calibration_distillation,
    class_query,
    ensemble_logits,
)
from fedjax_skew.losses.fedlf import adaptive_logit, class_center, feature_decorrelation, fedlf
from fedjax_skew.losses.fedvls import fedvls, logit_suppression, vacant_class_distillation
from fedjax_skew.losses.representation import manifold_reshaping, model_contrastive

__all__ = [
    "adaptive_logit",
    "balanced_softmax",
    "calfat",
    "calibration_distillation",
    "class_center",
    "class_importance_weights",
    "class_query",
    "cross_entropy",
    "distillation",
    "ensemble_logits",
    "feature_decorrelation",
    "fedlc",
    "fedlf",
    "fedvls",
    "focal",
    "gravitation",
    "label_masking_distillation",
    "local_logit_calibration",
    "logit_suppression",
    "logit_wasserstein",
    "manifold_reshaping",
    "model_contrastive",
    "not_true_distillation",
    "restricted_softmax",
    "synthetic_logits",
    "unbalanced_softmax",
    "vacant_class_distillation",
]
