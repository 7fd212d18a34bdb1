"""The lab: tasks, arms that answer them, one frame of results, and views of it. The core never imports it."""
