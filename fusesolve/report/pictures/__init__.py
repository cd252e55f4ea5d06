"""Pictures of results: one self-contained HTML page, a trace, a DOT graph, an overlay for Model Explorer."""
