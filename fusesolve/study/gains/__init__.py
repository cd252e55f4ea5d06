"""The gain of fusion: predicted against measured speed-up of fused over unfused execution."""
