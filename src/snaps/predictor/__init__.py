"""Both layers together: what `calibrate` makes, and what can be asked of it afterwards."""
