"""Step `import`: OpenAI-format conversations from elsewhere become a validated, scrubbed, purpose-tagged dataset."""
