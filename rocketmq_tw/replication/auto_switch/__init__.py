"""Auto-switch HA: master and slaves that change places, told apart by epochs."""
