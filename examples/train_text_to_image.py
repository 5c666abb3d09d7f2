"""Fine-tunes the UNet of a Stable Diffusion model on captioned pictures.

    python examples/train_text_to_image.py MODEL PICTURES OUTPUT --max_train_steps 1000 --learning_rate 1e-5

MODEL: a folder in diffusers' layout (unet, vae, text_encoder, tokenizer, scheduler). PICTURES: a folder with
metadata.jsonl (file_name and text) or picture.txt beside picture.png, or a tar of either. Latents and embedded captions
are computed once, into OUTPUT/latents. The trained network is written to OUTPUT/unet, checkpoints beside it; Ctrl-C
saves and the same call goes on.
"""

import argparse
import os

import scaffolding as sf
from scaffolding.data import ImageFolder, WebDataset, cache_rows, transforms
from scaffolding.diffusion import DDPMScheduler, FlowMatchEulerDiscreteScheduler, diffusion_loss
from scaffolding.models import AutoencoderKL, CLIPTextModel, UNet2DConditionModel
from scaffolding.tokenizers import CLIPTokenizer
from scaffolding.train import Trainer
from scaffolding.utils.data import DataLoader


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("pictures")
    parser.add_argument("output")
    parser.add_argument("--resolution", type=int, default=512)
    parser.add_argument("--caption_column", help="of metadata.jsonl; text, caption or prompt unless given")
    parser.add_argument("--train_batch_size", type=int, default=4)
    parser.add_argument("--gradient_accumulation_steps", type=int, default=1)
    parser.add_argument("--max_train_steps", type=int, default=1000)
    parser.add_argument("--learning_rate", type=float, default=1e-5)
    parser.add_argument("--lr_scheduler", default="constant_with_warmup")
    parser.add_argument("--lr_warmup_steps", type=int, default=0)
    parser.add_argument(
        "--prediction_type", help="epsilon, v_prediction, sample or flow_prediction; as the scheduler says unless given"
    )
    parser.add_argument("--snr_gamma", type=float, help="min-SNR weights; 5 is usual")
    parser.add_argument("--noise_offset", type=float, default=0.0)
    parser.add_argument("--input_perturbation", type=float, default=0.0)
    parser.add_argument(
        "--caption_dropout", type=float, default=0.1, help="the share of samples trained with the empty caption"
    )
    parser.add_argument("--ema_decay", type=float, help="averages the weights and writes the averages; 0.9999 is usual")
    parser.add_argument("--gradient_checkpointing", action="store_true")
    parser.add_argument("--mixed_precision", default="no", choices=["no", "bf16", "fp16"])
    parser.add_argument("--checkpointing_steps", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def training_scheduler(folder, prediction_type):
    """The noise that the model knows: whatever sampler the folder names, with its betas."""
    config = DDPMScheduler.load_config(folder, subfolder="scheduler")
    flow = prediction_type == "flow_prediction" or config.get("_class_name") == "FlowMatchEulerDiscreteScheduler"
    if flow:  # pipelines refuse to sample by flow from a model whose config says that it predicts noise
        return FlowMatchEulerDiscreteScheduler.from_config({**config, "prediction_type": "flow_prediction"})
    return DDPMScheduler.from_config(config)


def cached(args):
    """Latents and embedded captions of all pictures, as rows, and the empty caption's embedding.
    The encoders are gone from memory afterwards.
    """
    tokenizer = CLIPTokenizer.from_pretrained(os.path.join(args.model, "tokenizer"))
    text_encoder = CLIPTextModel.from_pretrained(args.model, subfolder="text_encoder")
    vae = AutoencoderKL.from_pretrained(args.model, subfolder="vae")
    length = text_encoder.config.max_position_embeddings

    def embed(captions):
        ids = tokenizer(
            captions, padding="max_length", truncation=True, max_length=length, return_tensors="sf"
        ).input_ids
        return text_encoder(ids).last_hidden_state

    def encode(batch):
        latents = vae.encode(batch["image"]).latent_dist.sample() * vae.config.scaling_factor
        return {"latents": latents, "encoder_hidden_states": embed(batch["text"])}

    prepare = transforms.Compose(
        [
            transforms.Resize(args.resolution, "bicubic"),
            transforms.CenterCrop(args.resolution),
            transforms.ToFloat(),
            transforms.Normalize(0.5, 0.5),
        ]
    )
    Pictures = WebDataset if args.pictures.endswith(".tar") else ImageFolder
    pictures = Pictures(args.pictures, prepare, caption_column=args.caption_column)
    about = f"{os.path.abspath(args.pictures)} at {args.resolution} by {os.path.abspath(args.model)}"
    rows = cache_rows(
        os.path.join(args.output, "latents"),
        DataLoader(pictures, batch_size=args.train_batch_size),
        encode,
        about=about,
    )
    with sf.no_grad():
        return rows, embed([""])


def main():
    args = arguments()
    sf.manual_seed(args.seed)
    rows, no_caption = cached(args)
    scheduler = training_scheduler(args.model, args.prediction_type)
    unet = UNet2DConditionModel.from_pretrained(args.model, subfolder="unet", torch_dtype=sf.float32).train()
    if args.gradient_checkpointing:
        unet.enable_gradient_checkpointing()
    loader = DataLoader(
        rows, batch_size=args.train_batch_size, shuffle=True, drop_last=len(rows) >= args.train_batch_size
    )
    optimizer = sf.optim.AdamW(unet.parameters(), lr=args.learning_rate)

    def step(batch):
        return diffusion_loss(
            unet,
            scheduler,
            batch["latents"],
            batch["encoder_hidden_states"],
            no_caption,
            prediction_type=args.prediction_type,
            snr_gamma=args.snr_gamma,
            noise_offset=args.noise_offset,
            input_perturbation=args.input_perturbation,
            condition_dropout=args.caption_dropout,
        )

    trainer = Trainer(
        unet,
        optimizer,
        loader,
        step,
        args.output,
        max_steps=args.max_train_steps,
        gradient_accumulation_steps=args.gradient_accumulation_steps,
        max_grad_norm=1.0,
        mixed_precision=args.mixed_precision,
        scheduler=sf.optim.get_scheduler(
            args.lr_scheduler, optimizer, num_warmup_steps=args.lr_warmup_steps, num_training_steps=args.max_train_steps
        ),
        ema=sf.optim.EMAModel(unet.parameters(), decay=args.ema_decay) if args.ema_decay else None,
        seed=args.seed,
        checkpointing_steps=args.checkpointing_steps,
        resume="latest",
    )
    result = trainer.fit()
    if trainer.ema is not None:
        trainer.ema.copy_to(unet.parameters())
    unet.save_pretrained(os.path.join(args.output, "unet"))
    print(
        f"{result.step} steps on {len(rows)} pictures, last loss {trainer.loss:.4f}; "
        f"{os.path.join(args.output, 'unet')}"
    )


if __name__ == "__main__":
    main()
