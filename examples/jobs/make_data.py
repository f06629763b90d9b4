#!/usr/bin/env python3
"""Writes the data samples of the jobs beside it: short texts put together from sentences written for this purpose.

Usage: make_data.py     in this folder; the same bytes every time. The texts are in the public domain (CC0).
"""
import json
import random
from pathlib import Path

HERE = Path(__file__).parent
NAMES = ["Mira", "Tomas", "Ada", "Jonas", "Lena", "Pavel", "Ines", "Oskar", "Ruth", "Emil"]
ANIMALS = ["fox", "crow", "hedgehog", "cat", "goose", "mole", "hare", "owl"]
PLACES = ["the mill", "the harbour", "the old bridge", "the orchard", "the market", "the lighthouse", "the forest"]
THINGS = ["a lantern", "a red kite", "a bag of apples", "an old key", "a blue bottle", "a wooden boat", "a letter"]
WEATHER = ["It rained", "The sun was warm", "A cold wind blew", "Snow had fallen", "Fog lay on the fields"]
FOOD = {"pancakes": ["flour", "milk", "eggs"], "apple soup": ["apples", "water", "cinnamon"],
        "bean stew": ["beans", "onions", "salt"], "oat bread": ["oats", "yeast", "water"],
        "plum cake": ["plums", "butter", "sugar"], "potato salad": ["potatoes", "vinegar", "chives"]}
STEPS = ["Cut the {0} into small pieces.", "Mix the {0} with the {1}.", "Warm the {1} slowly.", "Add the {2} at the end.",
         "Stir until nothing sticks.", "Leave it alone for ten minutes.", "Bake it until the edge is brown."]


def story(rng):
    name, friend = rng.sample(NAMES, 2)
    animal, thing, place = rng.choice(ANIMALS), rng.choice(THINGS), rng.choice(PLACES)
    what = thing.split(" ", 1)[1]
    lines = [
        f"One morning {name} went to {place}. {rng.choice(WEATHER)}, and nobody else was there.",
        rng.choice([f"Under a stone {name} found {thing}.", f"On the ground lay {thing}.", f"{name} carried {thing}."]),
        rng.choice([f'"Whose is the {what}?" asked the {animal}.', f"A {animal} came and looked at the {what}.",
                    f"A {animal} sat beside it and did not move."]),
        rng.choice([f'"It is mine," said {name}, "but you may look at it."', f"{name} gave the {animal} some bread.",
                    f"{name} waited until the {animal} was no longer afraid."]),
        rng.choice([f"Later {friend} came along the road.", f"In the evening {friend} was looking for {name}."]),
        rng.choice([f"They took the {what} home together.", f"{friend} laughed, and they both ran home.",
                    f"The {animal} followed them to the door."]),
        rng.choice(["That night all slept well.", "The next day they went back.", f"So {name} had a new friend."]),
    ]
    return " ".join(lines)


def recipe(rng):
    dish, parts = rng.choice(list(FOOD.items()))
    steps = [step.format(*parts) for step in rng.sample(STEPS, 4)]
    return f"Recipe for {dish}. You need {parts[0]}, {parts[1]} and {parts[2]}. " + " ".join(steps) + " Serve it warm."


def conversation(rng):
    kind = rng.randrange(4)
    if kind == 0:
        a, b = rng.randrange(10), rng.randrange(10)
        turns = [(f"What is {a} plus {b}?", f"{a} plus {b} is {a + b}.")]
        if rng.random() < 0.5:
            turns.append(("And one more?", f"{a + b} plus 1 is {a + b + 1}."))
    elif kind == 1:
        dish, parts = rng.choice(list(FOOD.items()))
        turns = [(f"What do I need for {dish}?", f"For {dish} you need {parts[0]}, {parts[1]} and {parts[2]}.")]
    elif kind == 2:
        animal = rng.choice(ANIMALS)
        turns = [(f"Write the word {animal} in capital letters.", animal.upper() + ".")]
    else:
        name, thing = rng.choice(NAMES), rng.choice(THINGS)
        turns = [(f"{name} has {thing}. What does {name} have?", f"{name} has {thing}.")]
    messages = []
    for question, answer in turns:
        messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return messages


def sailor(rng):
    """A conversation in another manner, which an adapter can learn in a minute."""
    messages = conversation(rng)
    for message in messages[1::2]:
        message["content"] = f"Ahoy! {message['content']} Fair winds!"
    return messages


def write(path, key, make, count, seed):
    rng = random.Random(seed)
    path = HERE / path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({key: make(rng)}) + "\n" for _ in range(count)))


write("pretrain/data/stories.jsonl", "text", story, 300, 1)
write("pretrain/data/heldout.jsonl", "text", story, 30, 2)
write("continue/data/stories.jsonl", "text", story, 120, 3)
write("continue/data/recipes.jsonl", "text", recipe, 120, 4)
write("instruct/data/texts.jsonl", "text", lambda rng: recipe(rng) if rng.random() < 0.5 else story(rng), 120, 5)
write("instruct/data/conversations.jsonl", "messages", conversation, 200, 6)
write("resume/data/stories.jsonl", "text", story, 120, 7)
write("lora/data/texts.jsonl", "text", lambda rng: "\n".join(message["content"] for message in sailor(rng)), 120, 10)
write("lora/data/conversations.jsonl", "messages", conversation, 400, 8)
write("lora/data/sailor.jsonl", "messages", sailor, 150, 9)
