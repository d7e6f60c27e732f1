"""Expected values per hardware with source and date, physical ceilings, and the lint that holds them."""
