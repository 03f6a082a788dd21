"""Networks that learn beside PyTorch: gradients of the first step, and the losses of those that follow."""
