"""A reward that is learned beside any learner, in any environment."""
