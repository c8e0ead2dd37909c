"""Builds the model under LoRA and its tokenizer, once per child.

Runs in: child. Speed does not depend on the values of dense weights, so `random` builds the architecture on the
device from its config, without a read or a download. Sparse (mixture of experts) and quantised models route and
unpack by value: they are loaded.
*Not covered*: which files a model needs (`objectives.model_files` checks that in the parent).
"""

from __future__ import annotations

from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from objectives.schema import Workload


def build_tokenizer(path: str) -> Any:
    """Return the fast tokenizer in `path` (a directory or hub id)."""
    return AutoTokenizer.from_pretrained(path, use_fast=True, trust_remote_code=False)


def build_model(workload: Workload, path: str, device: torch.device, tokenizer_size: int) -> torch.nn.Module:
    """Return the model under LoRA, in training mode, gradient checkpointing prepared once.

    Checkpointing is switched on here and not by each trial's Trainer: it would hook the embeddings again every time.
    """
    torch.manual_seed(workload.seed)
    dtype = getattr(torch, workload.torch_dtype)
    model: Any
    config = AutoConfig.from_pretrained(path, trust_remote_code=False)
    if workload.weights == "load" or (workload.weights == "auto" and routes_by_value(config)):
        model = AutoModelForCausalLM.from_pretrained(path, dtype=dtype, trust_remote_code=False, use_safetensors=True)
        model.to(device)
    else:
        if routes_by_value(config):
            raise ValueError(
                "weights must be loaded for a sparse or quantised model but got random: use --weights load."
            )
        if config.vocab_size < tokenizer_size:
            raise ValueError(
                f"vocab_size must be at least the tokenizer's {tokenizer_size} but got {config.vocab_size}."
            )
        with torch.device(device):
            model = AutoModelForCausalLM.from_config(config, dtype=dtype, trust_remote_code=False)
    model.config.use_cache = False
    if workload.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.enable_input_require_grads()
    targets: Any = list(workload.target_modules)
    lora = LoraConfig(
        r=workload.lora_rank,
        lora_alpha=workload.lora_alpha,
        target_modules=targets[0] if targets == ["all-linear"] else targets,
        lora_dropout=0.05,  # ms-swift's default
        task_type="CAUSAL_LM",
    )
    peft_model: Any = get_peft_model(model, lora)
    peft_model.to(device)
    peft_model.train()
    return peft_model


def routes_by_value(config: Any) -> bool:
    """Return whether the speed depends on the weights: mixture of experts, or quantised."""
    sparse = ("num_experts", "num_local_experts", "n_routed_experts", "moe_intermediate_size")
    return any(getattr(config, name, None) for name in (*sparse, "quantization_config"))
