"""What summaries of a study read: many trials at once, without long texts."""
