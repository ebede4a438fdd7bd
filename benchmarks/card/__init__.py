"""What `on_a_card.py` is made of."""
