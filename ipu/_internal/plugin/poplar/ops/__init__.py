"""Operations of the plugin."""
