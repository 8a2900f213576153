"""`goldsmith lint`: what is wrong with an image before anything is built, from the definition and the lock alone.

facts: what is known (facts.yaml). subject: the image as rules see it. rules/: what must hold, by topic; roles have
rules of their own in lint.py. engine: from an image's folder to problems.
"""
