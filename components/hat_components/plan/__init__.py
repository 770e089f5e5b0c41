"""What a training job needs: shapes of a model (shape), memory by component and stage (memory), the plan itself (config)."""
