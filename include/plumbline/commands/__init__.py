"""The commands of `plumbline`: each module adds its own to the parser."""
