"""The page: events of the engine in, Gradio components out. Never imports torch or transformers."""
