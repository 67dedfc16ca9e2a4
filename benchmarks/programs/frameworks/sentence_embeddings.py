"""sentence-transformers with its trainer, a ranking loss and an evaluator."""

from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
    losses,
    models,
)
from sentence_transformers.evaluation import EmbeddingSimilarityEvaluator
from tiny_language import WORDS, rows, text, tokenizer
from transformers import BertConfig, BertModel

configuration = BertConfig(
    vocab_size=len(WORDS),
    hidden_size=256,
    num_hidden_layers=4,
    num_attention_heads=4,
    intermediate_size=1024,
)
BertModel(configuration).save_pretrained("bert")
tokenizer().save_pretrained("bert")
words = models.Transformer("bert", max_seq_length=64)
model = SentenceTransformer(modules=[words, models.Pooling(256)])
pairs = rows([{"anchor": text(30, i), "positive": text(30, i + 1)} for i in range(2000)])
some = pairs.select(range(100))
evaluator = EmbeddingSimilarityEvaluator(some["anchor"], some["positive"], [0.5] * 50 + [0.6] * 50)
arguments = SentenceTransformerTrainingArguments(
    output_dir="out",
    num_train_epochs=1,
    per_device_train_batch_size=32,
    eval_strategy="steps",
    eval_steps=20,
    save_steps=20,
    report_to="none",
)
trainer = SentenceTransformerTrainer(
    model=model,
    args=arguments,
    train_dataset=pairs,
    eval_dataset=some,
    loss=losses.MultipleNegativesRankingLoss(model),
    evaluator=evaluator,
)
trainer.train()
model.save("final")
