"""How a pipeline does: looked at once, shown as text or JSON."""
