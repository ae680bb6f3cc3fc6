"""Wrong input raises a ValueError that names the argument, also while tracing."""

import jax
import numpy as np
import pytest

from fedjax_skew import losses

X, Y = np.zeros((4, 3), np.float32), np.zeros(4, np.int32)
N = np.array([3, 0, 1])
TABLE, CENTERS, HELD = np.zeros((3, 3)), np.zeros((3, 3)), np.ones(3, bool)
STACK = np.zeros((2, 3, 3))

CALLS = {
    "integer logits": ("logits", lambda: losses.cross_entropy(Y[:, None], Y)),
    "float labels": ("labels", lambda: losses.cross_entropy(X, Y.astype(np.float32))),
    "too few labels": ("labels", lambda: losses.cross_entropy(X, Y[:3])),
    "one-hot labels": ("labels", lambda: losses.cross_entropy(X, X.astype(np.int32))),
    "scalar logits": ("logits", lambda: losses.cross_entropy(np.float32(1), 0)),
    "no classes": ("logits", lambda: losses.cross_entropy(X[:, :0], Y)),
    "too many counts": ("class_counts", lambda: losses.fedlc(X, Y, np.ones(4))),
    "counts per row": ("class_counts", lambda: losses.balanced_softmax(X, Y, np.ones((4, 3)))),
    "boolean counts": ("class_counts", lambda: losses.balanced_softmax(X, Y, N > 0)),
    "counts of FedRS": ("class_counts", lambda: losses.restricted_softmax(X, Y, N[:2])),
    "counts of FedLF": ("class_counts", lambda: losses.adaptive_logit(X, Y, N[:2])),
    "counts of FedGR": ("class_counts", lambda: losses.unbalanced_softmax(X, Y, N[:2])),
    "counts of CalFAT": ("class_counts", lambda: losses.calfat(X, Y, N[:2])),
    "zero floor": ("min_count", lambda: losses.fedlc(X, Y, N, min_count=0)),
    "zero eps": ("eps", lambda: losses.balanced_softmax(X, Y, N, eps=0.0)),
    "unknown form": ("form", lambda: losses.unbalanced_softmax(X, Y, N, form="max")),
    "another kernel's form": ("form", lambda: losses.fedlc(X, Y, N, form="sqrt")),
    "negative tau": ("tau", lambda: losses.fedlc(X, Y, N, tau=-0.1)),
    "tau without value": ("tau", lambda: losses.balanced_softmax(X, Y, N, tau=float("nan"))),
    "one tau per class": ("tau", lambda: losses.fedlc(X, Y, N, tau=np.ones(3))),
    "negative margin": (
        "max_margin",
        lambda: losses.class_center(X, Y, CENTERS, HELD, max_margin=-1.0),
    ),
    "labels of focal": ("labels", lambda: losses.focal(X, Y[:2])),
    "teacher's classes": (
        "teacher_logits",
        lambda: losses.vacant_class_distillation(X, X[:, :2], N),
    ),
    "teacher's dtype": ("teacher_logits", lambda: losses.distillation(X, X.astype(np.int32))),
    "teacher's rows": ("teacher_logits", lambda: losses.not_true_distillation(X, Y, X[:2])),
    "counts of FedLMD": (
        "class_counts",
        lambda: losses.label_masking_distillation(X, Y, X, N[:2]),
    ),
    "temperature": ("temperature", lambda: losses.distillation(X, X, temperature=0.0)),
    "rank of a batch": ("logits", lambda: losses.logit_suppression(X[0], Y[0], N)),
    "mask per entry": ("where", lambda: losses.logit_suppression(X, Y, N, where=X > 0)),
    "short mask": ("where", lambda: losses.cross_entropy(X, Y, where=np.ones(3, bool))),
    "rank of features": ("features", lambda: losses.feature_decorrelation(X[0])),
    "labels of features": ("labels", lambda: losses.class_center(X, Y[:2], CENTERS, HELD)),
    "width of centres": ("centers", lambda: losses.class_center(X, Y, CENTERS[:, :2], HELD)),
    "rank of centres": ("centers", lambda: losses.class_center(X, Y, CENTERS[0], HELD)),
    "presence": ("present", lambda: losses.class_center(X, Y, CENTERS, HELD[:2])),
    "rank of heads": ("heads", lambda: losses.gravitation(X, HELD)),
    "presence of heads": ("present", lambda: losses.gravitation(STACK, HELD)),
    "rank of means": ("mean", lambda: losses.logit_wasserstein(TABLE, TABLE, HELD)),
    "shape of variances": ("var", lambda: losses.logit_wasserstein(STACK, STACK[:1], HELD)),
    "presence of means": ("present", lambda: losses.logit_wasserstein(STACK, STACK, HELD)),
    "shape of distances": (
        "distances",
        lambda: losses.synthetic_logits(STACK, TABLE, num_neighbors=1),
    ),
    "too many neighbours": (
        "num_neighbors",
        lambda: losses.synthetic_logits(STACK, TABLE[:2, :2], num_neighbors=2),
    ),
    "part of a neighbour": (
        "num_neighbors",
        lambda: losses.synthetic_logits(STACK, TABLE[:2, :2], num_neighbors=0.5),
    ),
    "synthetic logits": ("synthetic", lambda: losses.local_logit_calibration(X, Y, TABLE[:2])),
    "local mean": ("local_mean", lambda: losses.class_importance_weights(X, X, HELD)),
    "synthetic mean": ("synthetic", lambda: losses.class_importance_weights(TABLE, X, HELD)),
    "query's scale": ("scale", lambda: losses.class_query(X, np.ones(2), np.ones(3))),
    "query's bias": ("bias", lambda: losses.class_query(X, np.ones(3), np.ones(2))),
    "client weights": (
        "weights",
        lambda: losses.ensemble_logits(STACK, np.ones(3), TABLE[:2], np.ones(2)),
    ),
    "client directions": (
        "r",
        lambda: losses.ensemble_logits(STACK, np.ones(2), TABLE, np.ones(2)),
    ),
    "client norms": (
        "client_norms",
        lambda: losses.ensemble_logits(STACK, np.ones(2), TABLE[:2], np.ones(3)),
    ),
    "calibrated teacher": (
        "teacher_logits",
        lambda: losses.normalized_distillation(X, X[:, :2]),
    ),
    "global features": ("global_features", lambda: losses.model_contrastive(X, X[:2], X)),
    "previous features": ("previous_features", lambda: losses.model_contrastive(X, X, X[:, :2])),
    "number of classes": (
        "num_classes",
        lambda: losses.intra_class_decorrelation(X, Y, num_classes=0),
    ),
    "labels of FedMR": (
        "labels",
        lambda: losses.intra_class_decorrelation(X, Y[:2], num_classes=3),
    ),
    "rank of a frame": ("matrix", lambda: losses.simplex_etf(X[0])),
    "frame with too many classes": ("matrix", lambda: losses.simplex_etf(X.T)),
    "frame of one class": ("matrix", lambda: losses.simplex_etf(X[:, :1])),
    "columns of a head": ("weights", lambda: losses.cosine_logits(X, TABLE[:2])),
    "width of prototypes": (
        "prototypes",
        lambda: losses.prototype_distance(X, Y, CENTERS[:, :2], HELD),
    ),
    "presence of prototypes": (
        "present",
        lambda: losses.prototype_distance(X, Y, CENTERS, HELD[:2]),
    ),
    "number of negatives": (
        "num_negatives",
        lambda: losses.supervised_contrastive(X, Y, num_negatives=0),
    ),
    "temperature of a penalty": (
        "temperature",
        lambda: losses.divergence_penalty(X, Y, temperature=-1.0),
    ),
    "rank of predictions": ("logits", lambda: losses.classifier_variance(X[0])),
    "mask of pairs": ("where", lambda: losses.feature_uniformity(X, where=X > 0)),
    "positive weights": (
        "positive_weights",
        lambda: losses.weighted_binary_cross_entropy(X, Y, np.ones(2), np.ones(3)),
    ),
    "negative weights": (
        "negative_weights",
        lambda: losses.weighted_binary_cross_entropy(X, Y, np.ones(3), np.ones((3, 1))),
    ),
    "counts of an entropy": ("class_counts", lambda: losses.prediction_entropy(X, N[:2])),
}


@pytest.mark.parametrize("case", CALLS)
def test_message_names_the_argument(case):
    argument, call = CALLS[case]
    with pytest.raises(ValueError, match=rf"^{argument}\b"):
        call()


def test_errors_appear_when_a_call_is_traced():
    with pytest.raises(ValueError, match=r"class_counts must have shape \(3,\)"):
        jax.jit(losses.fedlc)(X, Y, np.ones(4))


def test_array_likes_are_accepted():
    value = losses.balanced_softmax([[0.0, 0.0]], [1], [3, 1])
    np.testing.assert_allclose(value, np.log(4), rtol=1e-6)
