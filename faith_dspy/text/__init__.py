"""What can be told from text without a language model: sentences, tokens, lexical features, evidence."""
