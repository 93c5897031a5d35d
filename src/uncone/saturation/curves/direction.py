import re
from itertools import pairwise


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_LOWER = _set(
    "loss losses logloss nll ce xent crossentropy cross_entropy ppl perp perplexity perplexities surprisal nats bits "
    "bpb bpc bpw bpt error errors err wer cer ter mer der eer mse rmse mae mape smape nmse nrmse rmsle msle brier ece "
    "mce ace crps fid kid fad fvd lpips kl kld jsd mmd emd toxicity toxic stereotype stereotypes hallucination "
    "hallucinations distance likelihood_diff likelihood_difference regret cost latency fpr fnr forgetting"
)
_LIKELIHOODS = _set("likelihood likelihoods loglikelihood loglik logprob logprobs logp prob probability elbo")
_HIGHER = _LIKELIHOODS | _set(
    "acc accuracy f1 em match bleu sacrebleu rouge rouge1 rouge2 rougel rougelsum chrf meteor bertscore comet bleurt "
    "cider spice sari ndcg mrr map mcc matthews recall precision auc auroc auprc ap hit hits pass win wins winrate "
    "spearman spearmanr pearson pearsonr kendall corr correlation r2 reward rewards iou miou dice psnr ssim mc1 mc2 "
    "success solved correct sensitivity specificity kappa jaccard nmi ari improvement gain truthfulness"
)
_SPLITS = _set("train training val valid validation test eval dev mean avg average total step epoch")
"""If a metric has only such words, the task names what is measured, as in the tag loss/val."""
_GAUGES = _set(
    "scale scaler weight weights coef coefficient lambda lr threshold std variance time runtime latency second seconds "
    "sec ms num count samples uncone"
)
"""A name with such a word is not a measure of quality: loss_scale is not, nor is a gauge of uncone's monitor."""
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SHARES = "(?:acc|accuracy|f1|auc|auroc|iou|precision|recall|bleu)(?![a-z])"
_TURNED = re.compile(rf"(?:one[\W_])?minus[\W_]|no[nt][\W_]|[-\u2212]|1\s*[-\u2212]\s*(?={_SHARES})")
"""Such a beginning reverses the direction of the rest of a name."""


def is_lower_better(metric: str, task: str = "") -> bool | None:
    """Whether lower is better, by the metric's name, or else the task's; None for an unknown name.

    The last known word decides, as in reward_loss; neg_, minus_ and - before a name reverse it.

    >>> is_lower_better("val/loss"), is_lower_better("neg_loss"), is_lower_better("acc"), is_lower_better("lossless")
    (True, False, False, None)
    """
    name = _CAMEL.sub("_", metric).strip().casefold()
    for part in (name.rpartition("/")[2], name):
        if (lower := _of(part)) is not None:
            return lower
    return is_lower_better(task) if task and _SPLITS.issuperset(_words(name)) else None


def is_quality(metric: str, task: str = "") -> bool:
    """Whether the name of a logged series is a known measure of quality.

    >>> [is_quality(name) for name in ("eval/loss", "acc_norm", "learning_rate", "loss_scale", "uncone/isoscore")]
    [True, True, False, False, False]
    """
    return _GAUGES.isdisjoint(_words(f"{task}/{metric}".casefold())) and is_lower_better(metric, task) is not None


def _words(name: str) -> list[str]:
    return [word for word in re.split(r"[\W_]+", name) if word]


def _of(name: str) -> bool | None:
    turned = _TURNED.match(name)
    words = _words(name[turned.end() :] if turned else name)
    negative = words[:1] in (["neg"], ["negative"])
    known = {word: at for at, word in enumerate(words)}
    known |= {"_".join(pair): at for at, pair in enumerate(pairwise(words), 1)}
    last = max((word for word in known if word in _LOWER | _HIGHER), key=known.__getitem__, default="")
    if not last or (negative and last in _HIGHER - _LIKELIHOODS):  # negative_recall is the recall of a class
        return None
    return (last in _LOWER) != (bool(turned) != negative)
