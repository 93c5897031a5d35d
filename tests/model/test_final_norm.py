"""The LayerNorm that a head reads is found by running the model."""

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from uncone.diagnosis.why.direction.negative_direction import uniformly_negative_direction  # noqa: E402
from uncone.model.last_states import final_layer_norm  # noqa: E402

IDS = torch.arange(12)[None]
IDS_ = {"bos_token_id": 0, "eos_token_id": 0}
SIZES = {"vocab_size": 40, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}


def _gpt2() -> object:
    config = transformers.GPT2Config(vocab_size=40, n_positions=16, n_embd=16, n_layer=2, n_head=2, **IDS_)
    return transformers.GPT2LMHeadModel(config).eval()


def test_gpt2_and_neox_have_one_and_every_state_avoids_its_direction() -> None:
    neox = transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(**SIZES, **IDS_)).eval()
    for model, name in ((_gpt2(), "transformer.ln_f"), (neox, "gpt_neox.final_layer_norm")):
        norm, head = model.get_submodule(name), model.get_output_embeddings()
        torch.nn.init.normal_(norm.bias)
        found = final_layer_norm(model, head, IDS)
        assert found is not None
        assert torch.equal(found[0], norm.weight.detach())
        assert torch.equal(found[1], norm.bias.detach())
        taken = []
        hook = head.register_forward_pre_hook(lambda _, given, taken=taken: taken.append(given[0][0]))
        model(IDS)
        hook.remove()
        told = uniformly_negative_direction(taken[0], norm=found)
        assert told.exists is True
        assert told.norm.violations == 0
        assert told.norm.deviation < 1e-5


def test_a_norm_that_does_not_centre_is_none() -> None:
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES, **IDS_)).eval()
    assert final_layer_norm(model, model.lm_head, IDS) is None


def test_a_norm_that_the_head_does_not_read_is_none() -> None:
    model = _gpt2()
    model.transformer.ln_f.register_forward_hook(lambda _, __, made: 2 * made)
    assert final_layer_norm(model, model.lm_head, IDS) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("least", [1.0, 1e-6, 0.0])
def test_a_layer_norm_is_found_in_any_dtype_and_with_a_tiny_gain(dtype: torch.dtype, least: float) -> None:
    model = _gpt2()
    with torch.no_grad():
        model.transformer.ln_f.bias.normal_()
        model.transformer.ln_f.weight[3] = least
    assert final_layer_norm(model.to(dtype), model.lm_head, IDS) is not None
