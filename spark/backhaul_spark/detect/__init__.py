"""What is unusual in one series, judged by itself alone."""
