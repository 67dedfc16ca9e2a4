"""stable-baselines3's PPO on CartPole: rollouts between the training steps."""

import gymnasium
from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy

environment = gymnasium.make("CartPole-v1")
model = PPO("MlpPolicy", environment, n_steps=256, batch_size=64, device="cuda", verbose=1)
model.learn(total_timesteps=20000)
print(evaluate_policy(model, environment, n_eval_episodes=2))
model.save("ppo_cartpole")
