"""Speed: how much exact evidence and the edit cost, as ratios measured side by side on this machine."""
