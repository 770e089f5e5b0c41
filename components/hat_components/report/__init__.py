"""Step `report`: one self-contained HTML page that says what a run did and how sure that is."""
