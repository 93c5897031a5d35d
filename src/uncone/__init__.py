"""uncone"""
