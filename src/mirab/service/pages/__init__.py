"""The pages that `mirab serve` shows in a browser, the data that they ask for, and how one logs in to them."""
