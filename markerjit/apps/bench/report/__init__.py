"""How results are drawn and laid out, of whatever kind of cost they are."""
