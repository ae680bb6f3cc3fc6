"""Loss kernels for federated learning under label skew, as pure functions of arrays.

Conventions:

- ``logits [..., C]`` or ``features [..., D]`` come first and integer ``labels [...]`` second.
  ``class_counts [C]`` holds the number of one client's samples per class, as integers or floats.
- Hyper-parameters are keyword-only scalars: Python numbers, or arrays that may be traced, mapped
  with ``vmap`` or learnt. Only the values of Python numbers are validated.
- A per-example loss returns ``[...]`` and leaves the reduction to the caller. A loss that is a
  statistic of the batch returns a scalar.
- ``where`` masks rows. A masked row has a loss of 0, or does not enter the statistic.
- ``form`` selects a variant where several exist: ``"paper"`` is the printed equation, ``"code"``
  is the authors' code. The default is a form that trains.
- A vacant class, which is a class with a count of 0, is excluded from the softmax by masking its
  logit. A row whose own label is vacant keeps that class, as if it had one sample, so that the loss
  remains a cross-entropy. A label outside ``0..C-1`` marks padding and has a loss of 0.
- Teachers, class centres and other models' features receive no gradient unless the docstring says
  otherwise.

Every kernel makes the following guarantees, for every form and every option:

- It works under ``jit``, ``vmap``, ``grad`` and ``checkpoint``, alone and nested, with respect to
  array-valued hyper-parameters as well. Forms, flags and sizes are static.
- Values and gradients are finite for every vector of counts, including that of a client without
  data, for logits of +-1e4, for zero features, for batches of one class or one row, and for
  arbitrary content of the rows that ``where`` masks. Masked rows receive a gradient of exactly 0.
  The one exception is the distance between two clients that share no class, which is infinite by
  definition.
- It computes in float32 or wider, and the result has that dtype: half-precision input gives
  float32, and float64 input gives float64.
- Wrong shapes, wrong dtypes and invalid Python numbers raise a ``ValueError`` that names the
  argument when the call is traced.

=================================  =============================  ==================
kernel                             paper                          equation
=================================  =============================  ==================
``fedlc``                          FedLC                          7
``logit_wasserstein``              FedLC-LT                       1
``synthetic_logits``               FedLC-LT                       2
``local_logit_calibration``        FedLC-LT                       3
``class_importance_weights``       FedLC-LT                       4
``ensemble_logits``                FedLC-LT                       5, 6
``class_query``                    FedLC-LT                       7
``normalized_distillation``        FedLC-LT                       8
``balanced_softmax``               FedVLS, logit adjustment       2
``vacant_class_distillation``      FedVLS                         3
``logit_suppression``              FedVLS                         4, 5
``adaptive_logit``                 FedLF                          3-5
``class_center``                   FedLF                          8, 9
``feature_decorrelation``          FedLF                          10-12
``unbalanced_softmax``             FedGR                          3, 4
``gravitation``                    FedGR                          9
``cross_entropy``
``restricted_softmax``             FedRS
``focal``                          focal loss
``calfat``                         CalFAT                         published code
``not_true_distillation``          FedNTD
``label_masking_distillation``     FedLMD, FedLMD-Tf
``distillation``                   FedDF, FedBE, FEDIC
``model_contrastive``              MOON
``intra_class_decorrelation``      FedMR                          intra-class term
``dimensional_decorrelation``      FedDecorr
``simplex_etf``                    FedETF, FedGELA, FedLoGe
``cosine_logits``                  FedETF, FedNH, FedGELA
``prototype_distance``             FedProto
``supervised_contrastive``         FedRCL                         first term
``divergence_penalty``             FedRCL                         second term
``classifier_variance``            FedUV                          variance
``feature_uniformity``             FedUV                          uniformity
``weighted_binary_cross_entropy``  Fed-GraB
``prediction_entropy``             BalanceFL                      smooth term
=================================  =============================  ==================
"""

from fedjax_skew.losses._contrastive import (
    divergence_penalty,
    model_contrastive,
    supervised_contrastive,
)
from fedjax_skew.losses._decorrelation import (
    dimensional_decorrelation,
    feature_decorrelation,
    intra_class_decorrelation,
)
from fedjax_skew.losses._distillation import (
    distillation,
    label_masking_distillation,
    not_true_distillation,
)
from fedjax_skew.losses._entropy import prediction_entropy
from fedjax_skew.losses._etf import cosine_logits, simplex_etf
from fedjax_skew.losses._fedgr import gravitation, unbalanced_softmax
from fedjax_skew.losses._fedlc import fedlc
from fedjax_skew.losses._fedlc_lt import (
    class_importance_weights,
    local_logit_calibration,
    logit_wasserstein,
    synthetic_logits,
)
from fedjax_skew.losses._fedlc_lt_server import (
    class_query,
    ensemble_logits,
    normalized_distillation,
)
from fedjax_skew.losses._fedlf import adaptive_logit, class_center
from fedjax_skew.losses._feduv import classifier_variance, feature_uniformity
from fedjax_skew.losses._fedvls import logit_suppression, vacant_class_distillation
from fedjax_skew.losses._prototypes import prototype_distance
from fedjax_skew.losses._sigmoid import weighted_binary_cross_entropy
from fedjax_skew.losses._softmax import (
    balanced_softmax,
    calfat,
    cross_entropy,
    focal,
    restricted_softmax,
)

__all__ = [
    "adaptive_logit",
    "balanced_softmax",
    "calfat",
    "class_center",
    "class_importance_weights",
    "class_query",
    "classifier_variance",
    "cosine_logits",
    "cross_entropy",
    "dimensional_decorrelation",
    "distillation",
    "divergence_penalty",
    "ensemble_logits",
    "feature_decorrelation",
    "feature_uniformity",
    "fedlc",
    "focal",
    "gravitation",
    "intra_class_decorrelation",
    "label_masking_distillation",
    "local_logit_calibration",
    "logit_suppression",
    "logit_wasserstein",
    "model_contrastive",
    "normalized_distillation",
    "not_true_distillation",
    "prediction_entropy",
    "prototype_distance",
    "restricted_softmax",
    "simplex_etf",
    "supervised_contrastive",
    "synthetic_logits",
    "unbalanced_softmax",
    "vacant_class_distillation",
    "weighted_binary_cross_entropy",
]
