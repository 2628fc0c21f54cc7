"""The host's endpoints of infeeds and outfeeds: threads that feed and collect while a program runs."""
